"""What is promised to the users: signatures, defaults, members of enums, keys of dicts; operators rely on these."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import pathlib
import typing
from typing import Any

import pytest

import kopf
import kopf.cli
import kopf.on
import kopf.testing
from kopf._operator.embedding import OperatorOptions
from tests.public_api import describe_surface

# As the API reference has them. What is not there can be added, but only as optional.
_NAME = "group_or_groupversion_or_name=None, version_or_name=None, name=None, /"
_SELECTOR = "group=None, version=None, kind=None, plural=None, singular=None, shortcut=None, category=None"
_RETRIES = "errors=None, timeout=None, retries=None, backoff=None"
_FILTERS = "labels=None, annotations=None, when=None, field=None, value=None"
_ACTIVITY = f"*, id=None, param=None, {_RETRIES}, registry=None"
_EVENT = f"{_NAME}, *, {_SELECTOR}, id=None, param=None, {_FILTERS}, registry=None"
_CREATE = f"{_EVENT}, {_RETRIES}"
_WEBHOOK = f"""
    {_EVENT}, operation=None, operations=None, subresource=None, persistent=None, side_effects=None,
    ignore_failures=None
"""
_DAEMON = f"""
    {_CREATE}, initial_delay=None, cancellation_backoff=None, cancellation_timeout=None, cancellation_polling=None
"""
_TIMER = f"{_CREATE}, interval=None, initial_delay=None, sharp=None, idle=None"
_REGISTER = f"fn, *, id=None, param=None, {_RETRIES}, labels=None, annotations=None, when=None"
_OPERATOR = """
    *, lifecycle=None, registry=None, settings=None, identity=None, standalone=None, priority=None, peering_name=None,
    liveness_endpoint=None, clusterwide=False, namespaces=(), namespace=None, stop_flag=None, ready_flag=None,
    vault=None, memo=None, memories=None, insights=None, indexers=None, _command=None
"""
_SERVER = """
    *, addr=None, port=None, path=None, host=None, cadata=None, cafile=None, cadump=None, context=None, insecure=False,
    certfile=None, pkeyfile=None, password=None, extra_sans=(), verify_mode=None, verify_cafile=None,
    verify_capath=None, verify_cadata=None, file_check_interval=60.0, max_body=None, max_connections=None
"""
_CREDENTIALS = """
    ca_path=None, ca_data=None, insecure=None, username=None, password=None, scheme=None, token=None,
    certificate_path=None, certificate_data=None, private_key_path=None, private_key_data=None,
    default_namespace=None, priority=0, expiration=None, proxy_url=None, trust_env=False
"""

DECORATORS: dict[str, str] = {
    "on.startup": _ACTIVITY,
    "on.cleanup": _ACTIVITY,
    "on.login": _ACTIVITY,
    "on.probe": _ACTIVITY,
    "on.validate": _WEBHOOK,
    "on.mutate": _WEBHOOK,
    "on.resume": f"{_CREATE}, deleted=None",
    "on.create": _CREATE,
    "on.update": f"{_CREATE}, old=None, new=None",
    "on.delete": f"{_CREATE}, optional=None",
    "on.field": f"{_CREATE.replace('field=None', 'field')}, old=None, new=None",
    "on.index": _CREATE,
    "index": _CREATE,
    "on.event": _EVENT,
    "on.daemon": _DAEMON,
    "daemon": _DAEMON,
    "on.timer": _TIMER,
    "timer": _TIMER,
}
SIGNATURES: dict[str, str] = {
    **DECORATORS,
    "on.subhandler": f"*, id=None, param=None, {_RETRIES}, {_FILTERS}, old=None, new=None",
    "subhandler": f"*, id=None, param=None, {_RETRIES}, {_FILTERS}, old=None, new=None",
    "on.register": _REGISTER,
    "register": _REGISTER,
    "execute": "*, fns=None, handlers=None, registry=None, lifecycle=None, cause=None",
    "configure": "debug=None, verbose=None, quiet=None, log_format=kopf.LogFormat.FULL, log_prefix=False, "
    "log_refkey=None",
    "login_via_pykube": "*, logger, **_",
    "login_via_client": "*, logger, **_",
    "login_via_async_client": "*, logger, **_",
    "login_with_kubeconfig": "**_",
    "login_with_service_account": "**_",
    "ConnectionInfo": f"*, server, {_CREDENTIALS}",
    "AiohttpSession": "*, server, aiohttp_session, default_namespace=None, priority=0, expiration=None",
    "event": "objs, *, type, reason, message='', backoffs=None",
    "info": "objs, *, reason, message='', backoffs=None",
    "warn": "objs, *, reason, message='', backoffs=None",
    "exception": "objs, *, reason='', message='', exc=None, backoffs=None",
    "operator": _OPERATOR,
    "run": f"{_OPERATOR.rstrip()}, loop=None",
    "spawn_tasks": _OPERATOR,
    "run_tasks": "root_tasks, *, ignored=frozenset()",
    "adopt": "objs, owner=None, *, forced=False, strict=False, nested=None",
    "label": "objs, labels=None, *, forced=False, nested=None, force=None",
    "harmonize_naming": "objs, name=None, *, forced=False, strict=False",
    "adjust_namespace": "objs, namespace=None, *, forced=False",
    "not_": "fn",
    "all_": "fns",
    "any_": "fns",
    "none_": "fns",
    "get_default_lifecycle": "",
    "set_default_lifecycle": "lifecycle",
    "get_default_registry": "",
    "set_default_registry": "registry",
    "lifecycles.all_at_once": "handlers, **_",
    "lifecycles.one_by_one": "handlers, **_",
    "lifecycles.randomized": "handlers, **_",
    "lifecycles.shuffled": "handlers, **_",
    "lifecycles.asap": "handlers, *, state, **_",
    "build_object_reference": "body",
    "build_owner_reference": "body, *, controller=True, block_owner_deletion=True",
    "append_owner_reference": "objs, owner=None, *, controller=True, block_owner_deletion=True",
    "remove_owner_reference": "objs, owner=None",
    "AdmissionError": "message='', code=500",
    "TemporaryError": "msg=None, /, delay=60",
    "WebhookServer": _SERVER,
    "WebhookK3dServer": _SERVER,
    "WebhookMinikubeServer": _SERVER,
    "WebhookDockerDesktopServer": _SERVER,
    "WebhookAutoServer": _SERVER,
    "WebhookAutoTunnel": "*, addr=None, port=None, path=None",
    "WebhookNgrokTunnel": "*, addr=None, port=None, path=None, token=None, region=None, binary=None",
    "WebhookServer.build_certificate": "hostnames, password=None",
    "AnnotationsDiffBaseStorage": "*, prefix='kopf.zalando.org', key='last-handled-configuration', v1=True",
    "StatusDiffBaseStorage": "*, name='kopf', field='status.{name}.last-handled-configuration'",
    "MultiDiffBaseStorage": "storages",
    "DiffBaseStorage": "ignored_fields=None",
    "DiffBaseStorage.remove_annotations": "essence, keys_to_remove",
    "DiffBaseStorage.remove_empty_stanzas": "essence",
    "AnnotationsDiffBaseStorage.make_keys": "self, key, *, body=None",
    "AnnotationsDiffBaseStorage.make_v1_key": "self, key, max_length=63",
    "AnnotationsDiffBaseStorage.make_v2_key": "self, key, max_length=63",
    "AnnotationsDiffBaseStorage.make_safe_key": "key",
    "AnnotationsDiffBaseStorage.make_suffix": "self, key",
    "AnnotationsDiffBaseStorage.mark_key": "self, key, *, body",
    "DiffBaseStorage.build": "self, *, body, extra_fields=None",
    "DiffBaseStorage.fetch": "self, *, body",
    "DiffBaseStorage.store": "self, *, body, patch, essence",
    "AnnotationsProgressStorage": "*, prefix='kopf.zalando.org', verbose=False, touch_key='touch-dummy', v1=True",
    "StatusProgressStorage": "*, name='kopf', field='status.{name}.progress', touch_field='status.{name}.dummy'",
    "MultiProgressStorage": "storages",
    "SmartProgressStorage": "*, name='kopf', field='status.{name}.progress', touch_key='touch-dummy', "
    "touch_field='status.{name}.dummy', prefix='kopf.zalando.org', v1=True, verbose=False",
    "ProgressStorage.fetch": "self, *, key, body",
    "ProgressStorage.store": "self, *, key, record, body, patch",
    "ProgressStorage.purge": "self, *, key, body, patch",
    "ProgressStorage.touch": "self, *, body, patch, value",
    "ProgressStorage.clear": "self, *, essence",
    "ProgressStorage.flush": "self",
    "Status": "src, /",
    "Spec": "src, /",
    "Meta": "src, /",
    "Body": "src, /",
    "Patch": "src=None, /, body=None",
    "Patch.as_json_patch": "self, body=None",
    "ObjectLogger": "*, body, settings",
    "LocalObjectLogger": "*, body, settings",
    "ObjectLogger.process": "self, msg, kwargs",
    "DiffItem": "operation, field, old, new",
    "OperatorRegistry": "",
    "Resource": "group, version, plural, kind=None, singular=None, shortcuts=frozenset(), categories=frozenset(), "
    "subresources=frozenset(), namespaced=None, preferred=True, verbs=frozenset()",
    "Resource.get_url": "self, *, server=None, namespace=None, name=None, subresource=None, params=None",
    "cli.CLIControls": "ready_flag=None, stop_flag=None, vault=None, registry=None, settings=None, loop=None",
    "cli.logging_options": "fn",
    "cli.LogFormatParamType.convert": "self, value, param, ctx",
    "testing.KopfRunner": "*args, reraise=True, timeout=None, registry=None, settings=None, **kwargs",
}

ENUMS: dict[str, dict[str, Any]] = {
    "ErrorsMode": {"IGNORED": 1, "TEMPORARY": 2, "PERMANENT": 3},
    "DiffOperation": {"ADD": "add", "CHANGE": "change", "REMOVE": "remove"},
    "Reason": {
        "CREATE": "create",
        "UPDATE": "update",
        "DELETE": "delete",
        "RESUME": "resume",
        "NOOP": "noop",
        "FREE": "free",
        "GONE": "gone",
    },
    "DaemonStoppingReason": {
        "DONE": 1,
        "FILTERS_MISMATCH": 2,
        "RESOURCE_DELETED": 4,
        "OPERATOR_PAUSING": 8,
        "OPERATOR_EXITING": 16,
        "DAEMON_SIGNALLED": 32,
        "DAEMON_CANCELLED": 64,
        "DAEMON_ABANDONED": 128,
        "RESOURCE_HANDED_OVER": 256,
    },
    "LogFormat": {
        "PLAIN": "%(message)s",
        "JSON": "-json-",
        "FULL": "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s",
    },
}

TYPED_DICTS: dict[str, str] = {
    "WebhookClientConfigService": "namespace name path port",
    "WebhookClientConfig": "caBundle url service",
    "UserInfo": "username uid groups",
    "RawEvent": "type object",
    "RawBody": "apiVersion kind metadata spec status",
    "ProgressRecord": "started stopped delayed purpose retries success failure message subrefs",
    "BodyEssence": "metadata spec status",
    "ObjectReference": "apiVersion kind namespace name uid",
    "OwnerReference": "controller blockOwnerDeletion apiVersion kind name uid",
}

BASES: dict[str, type] = {
    "LoginError": Exception,
    "PermanentError": Exception,
    "TemporaryError": Exception,
    "AdmissionError": kopf.PermanentError,
    "HandlerTimeoutError": kopf.PermanentError,
    "HandlerRetriesError": kopf.PermanentError,
    "LogFormat": enum.Enum,
    "ErrorsMode": enum.Enum,
    "DaemonStoppingReason": enum.Flag,
    "Reason": str,
    "DiffOperation": str,
    "Body": collections.abc.Mapping,
    "Spec": collections.abc.Mapping,
    "Status": collections.abc.Mapping,
    "Meta": collections.abc.Mapping,
    "Index": collections.abc.Mapping,
    "Store": collections.abc.Collection,
    "Diff": collections.abc.Sequence,
    "DiffItem": tuple,
    "Patch": dict,
    "Memo": dict,
    "LocalObjectLogger": kopf.ObjectLogger,
    "AnnotationsDiffBaseStorage": kopf.DiffBaseStorage,
    "StatusDiffBaseStorage": kopf.DiffBaseStorage,
    "MultiDiffBaseStorage": kopf.DiffBaseStorage,
    "AnnotationsProgressStorage": kopf.ProgressStorage,
    "StatusProgressStorage": kopf.ProgressStorage,
    "MultiProgressStorage": kopf.ProgressStorage,
    "SmartProgressStorage": kopf.MultiProgressStorage,
    "WebhookK3dServer": kopf.WebhookServer,
    "WebhookMinikubeServer": kopf.WebhookServer,
    "WebhookAutoServer": kopf.WebhookServer,
    "WebhookDockerDesktopServer": kopf.WebhookServer,
}

ATTRIBUTES: dict[str, str] = {
    "Body": "metadata meta spec status",
    "Meta": "labels annotations uid name namespace creation_timestamp deletion_timestamp",
    "Patch": "metadata meta spec status fns",
    "DiffItem": "operation op field old new",
    "StatusDiffBaseStorage": "field",
    "StatusProgressStorage": "field touch_field",
    "testing.KopfRunner": "future output stdout stdout_bytes stderr stderr_bytes exit_code exception exc_info",
}

SETTINGS = "process posting peering watching queueing scanning admission execution background networking persistence"


UNKNOWN = object()
"""Optional, but the default is not in the signature."""


def find(name: str) -> Any:
    value: Any = kopf
    for part in name.split("."):
        value = getattr(value, part)
    return value


def parse(text: str) -> dict[str, inspect.Parameter]:
    """Turn a documented signature into its parameters."""
    return {**inspect.signature(eval(f"lambda {' '.join(text.split())}: None")).parameters}


def expand(value: Any) -> dict[str, inspect.Parameter]:
    """Get the parameters; the keywords that are described by a typed dict, are as good as those in the signature."""
    actual = {**inspect.signature(value).parameters}
    hints = typing.get_type_hints(value) if inspect.isfunction(value) else {}
    for name, param in [*actual.items()]:
        if param.kind is param.VAR_KEYWORD and (options := typing.get_args(hints.get(name))):
            del actual[name]
            known = inspect.signature(kopf.operator).parameters if options == (OperatorOptions,) else {}
            for key in options[0].__annotations__:
                actual[key] = known.get(key) or inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=UNKNOWN)
    return actual


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    actual, promised = expand(find(name)), parse(SIGNATURES[name])
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    if inspect.Parameter.VAR_POSITIONAL in {param.kind for param in actual.values()}:  # they are the positional ones
        promised = {key: param for key, param in promised.items() if param.kind is not param.POSITIONAL_ONLY}
    assert promised.keys() <= actual.keys()
    positions = [key for key, param in promised.items() if param.kind is not param.KEYWORD_ONLY]
    assert [key for key in actual if key in positions] == positions
    for key, param in promised.items():
        assert actual[key].kind is param.kind
        default = actual[key].default
        assert param.default is param.empty or default in (param.default, UNKNOWN) or "<factory>" in repr(default)
    added = [param for key, param in actual.items() if key not in promised]
    assert all(param.kind in variable or param.default is not param.empty for param in added)


def test_options_of_operators_are_the_same_however_they_are_run() -> None:
    assert typing.get_type_hints(OperatorOptions).keys() == inspect.signature(kopf.operator).parameters.keys()


@pytest.mark.parametrize("name", ["run", "freeze", "resume"])
def test_commands_are_offered_to_python(name: str) -> None:
    assert getattr(kopf.cli, name) is kopf.cli.main.commands[name]


def describe(registry: kopf.OperatorRegistry) -> list[dict[str, Any]]:
    return [
        {name: getattr(handler, name) for name in handler.__struct_fields__}
        for handler in [*registry.activities, *registry.resources, *registry.webhooks]
    ]


@pytest.mark.parametrize("name", DECORATORS)
def test_documented_defaults_of_decorators_are_as_if_nothing_is_specified(name: str) -> None:
    def fn(**_: Any) -> None: ...

    specified, unspecified = kopf.OperatorRegistry(), kopf.OperatorRegistry()
    required = {"field": "spec.field"} if name == "on.field" else {}
    params = parse(DECORATORS[name]).values()
    names = ("kopf.dev", "v1", "kopfexamples") if any(param.kind is param.POSITIONAL_ONLY for param in params) else ()
    options = {param.name: param.default for param in params if param.kind is param.KEYWORD_ONLY}
    find(name)(*names, **{**options, **required, "registry": specified})(fn)
    find(name)(*names, **required, registry=unspecified)(fn)
    assert len(describe(specified)) == 1
    assert describe(specified) == describe(unspecified)


def test_enums() -> None:
    assert {name: {item.name: item.value for item in find(name)} for name in ENUMS} == ENUMS


@pytest.mark.parametrize("name", TYPED_DICTS)
def test_keys_of_dicts(name: str) -> None:
    assert typing.is_typeddict(find(name))
    assert set(TYPED_DICTS[name].split()) <= typing.get_type_hints(find(name)).keys()


def test_classes() -> None:
    assert [name for name, base in BASES.items() if not issubclass(find(name), base)] == []


def test_attributes() -> None:
    promised = [(name, key) for name, keys in ATTRIBUTES.items() for key in keys.split()]
    assert [(name, key) for name, key in promised if not hasattr(find(name), key)] == []


def test_groups_of_settings() -> None:
    settings = kopf.OperatorSettings()
    assert {key for key in SETTINGS.split() if not hasattr(settings, key)} == set()
    with pytest.warns(DeprecationWarning, match="queueing"):
        assert settings.batching is settings.queueing  # the former name and the present one
    settings.queueing._batch_window = 3
    assert settings.queueing.batch_window == settings.queueing._batch_window == 3


@pytest.mark.parametrize(
    "cls",
    [
        kopf.WebhookServer,
        kopf.WebhookK3dServer,
        kopf.WebhookMinikubeServer,
        kopf.WebhookDockerDesktopServer,
        kopf.WebhookAutoServer,
        kopf.WebhookAutoTunnel,
        kopf.WebhookNgrokTunnel,
    ],
)
def test_options_of_webhook_servers_are_their_attributes(cls: Any) -> None:
    server = cls(addr="0.0.0.0", port=54321, path="some/path")
    assert (server.addr, server.port, server.path) == ("0.0.0.0", 54321, "some/path")
    defaults = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    actual = {name: getattr(cls(), name) for name in defaults}
    assert actual == {**defaults, **({"extra_sans": actual["extra_sans"]} if "extra_sans" in defaults else {})}
    assert not actual.get("extra_sans")


@pytest.mark.parametrize(
    ("cls", "host"),
    [
        (kopf.WebhookServer, None),
        (kopf.WebhookK3dServer, "host.k3d.internal"),
        (kopf.WebhookMinikubeServer, "host.minikube.internal"),
        (kopf.WebhookDockerDesktopServer, "host.docker.internal"),
    ],
)
def test_default_hosts_of_webhook_servers(cls: type[kopf.WebhookServer], host: str | None) -> None:
    assert host == cls.DEFAULT_HOST


def test_the_default_lifecycle() -> None:
    assert kopf.get_default_lifecycle() is kopf.lifecycles.asap


def test_the_surface_is_as_it_was_reviewed() -> None:
    """If the change is meant: ``python -m tests.public_api > tests/public_api.txt``, and an entry in the changelog."""
    reviewed = pathlib.Path(__file__).with_name("public_api.txt").read_text()
    assert describe_surface().splitlines() == reviewed.splitlines()
