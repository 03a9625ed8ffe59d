"""What is promised to the users: how the public functions and classes are called, with which defaults."""
from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pytest

import kopf
import kopf.cli
import kopf.testing
from kopf._operator.embedding import OperatorOptions

SERVER = (
    "*, addr=None, port=None, path=None, host=None, cadata=None, cafile=None, cadump=None, context=None, "
    "insecure=False, certfile=None, pkeyfile=None, password=None, extra_sans=(), verify_mode=None, "
    "verify_cafile=None, verify_capath=None, verify_cadata=None, file_check_interval=60.0, max_body=None, "
    "max_connections=None"
)
OPERATOR = (
    "*, lifecycle=None, registry=None, settings=None, identity=None, standalone=None, priority=None, "
    "peering_name=None, liveness_endpoint=None, clusterwide=False, namespaces=(), namespace=None, stop_flag=None, "
    "ready_flag=None, vault=None, memo=None, memories=None, insights=None, indexers=None, _command=None"
)
STATUS_PROGRESS = "*, name='kopf', field='status.{name}.progress', touch_field='status.{name}.dummy'"

# Those of the decorators are tested together with what they declare.
SIGNATURES: dict[Callable[..., Any], str] = {
    kopf.configure: (
        "debug=None, verbose=None, quiet=None, log_format=kopf.LogFormat.FULL, log_prefix=False, log_refkey=None"
    ),
    kopf.login_via_pykube: "*, logger",
    kopf.login_via_client: "*, logger",
    kopf.login_via_async_client: "*, logger",
    kopf.login_with_kubeconfig: "",
    kopf.login_with_service_account: "",
    kopf.ConnectionInfo: (
        "*, server, ca_path=None, ca_data=None, insecure=None, username=None, password=None, scheme=None, token=None, "
        "certificate_path=None, certificate_data=None, private_key_path=None, private_key_data=None, "
        "default_namespace=None, priority=0, expiration=None, proxy_url=None, trust_env=False"
    ),
    kopf.AiohttpSession: "*, server, aiohttp_session, default_namespace=None, priority=0, expiration=None",
    kopf.event: "objs, *, type, reason, message='', backoffs=None",
    kopf.info: "objs, *, reason, message='', backoffs=None",
    kopf.warn: "objs, *, reason, message='', backoffs=None",
    kopf.exception: "objs, *, reason='', message='', exc=None, backoffs=None",
    kopf.spawn_tasks: OPERATOR,
    kopf.operator: OPERATOR,
    kopf.run: f"{OPERATOR}, loop=None",
    kopf.run_tasks: "root_tasks, *, ignored=frozenset()",
    kopf.adopt: "objs, owner=None, *, forced=False, strict=False, nested=None",
    kopf.label: "objs, labels=None, *, forced=False, nested=None, force=None",
    kopf.harmonize_naming: "objs, name=None, *, forced=False, strict=False",
    kopf.adjust_namespace: "objs, namespace=None, *, forced=False",
    kopf.build_object_reference: "body",
    kopf.build_owner_reference: "body, *, controller=True, block_owner_deletion=True",
    kopf.append_owner_reference: "objs, owner=None, *, controller=True, block_owner_deletion=True",
    kopf.remove_owner_reference: "objs, owner=None",
    kopf.not_: "fn",
    kopf.all_: "fns",
    kopf.any_: "fns",
    kopf.none_: "fns",
    kopf.get_default_lifecycle: "",
    kopf.set_default_lifecycle: "lifecycle",
    kopf.get_default_registry: "",
    kopf.set_default_registry: "registry",
    kopf.OperatorRegistry: "",
    kopf.AdmissionError: "message='', code=500",
    kopf.TemporaryError: "msg=None, /, delay=60",
    kopf.WebhookServer: SERVER,
    kopf.WebhookK3dServer: SERVER,
    kopf.WebhookMinikubeServer: SERVER,
    kopf.WebhookDockerDesktopServer: SERVER,
    kopf.WebhookAutoServer: SERVER,
    kopf.WebhookAutoTunnel: "*, addr=None, port=None, path=None",
    kopf.WebhookNgrokTunnel: "*, addr=None, port=None, path=None, token=None, region=None, binary=None",
    kopf.WebhookServer.build_certificate: "hostnames, password=None",
    kopf.AnnotationsDiffBaseStorage: "*, prefix='kopf.zalando.org', key='last-handled-configuration', v1=True",
    kopf.StatusDiffBaseStorage: "*, name='kopf', field='status.{name}.last-handled-configuration'",
    kopf.MultiDiffBaseStorage: "storages",
    kopf.DiffBaseStorage: "ignored_fields=None",
    kopf.DiffBaseStorage.remove_annotations: "essence, keys_to_remove",
    kopf.DiffBaseStorage.remove_empty_stanzas: "essence",
    kopf.AnnotationsDiffBaseStorage.make_keys: "self, key, *, body=None",
    kopf.AnnotationsDiffBaseStorage.make_v1_key: "self, key, max_length=63",
    kopf.AnnotationsDiffBaseStorage.make_v2_key: "self, key, max_length=63",
    kopf.AnnotationsDiffBaseStorage.make_safe_key: "key",
    kopf.AnnotationsDiffBaseStorage.make_suffix: "self, key",
    kopf.AnnotationsDiffBaseStorage.mark_key: "self, key, *, body",
    kopf.DiffBaseStorage.build: "self, *, body, extra_fields=None",
    kopf.DiffBaseStorage.fetch: "self, *, body",
    kopf.DiffBaseStorage.store: "self, *, body, patch, essence",
    kopf.AnnotationsProgressStorage: "*, prefix='kopf.zalando.org', verbose=False, touch_key='touch-dummy', v1=True",
    kopf.StatusProgressStorage: STATUS_PROGRESS,
    kopf.MultiProgressStorage: "storages",
    kopf.SmartProgressStorage: (
        f"{STATUS_PROGRESS}, touch_key='touch-dummy', prefix='kopf.zalando.org', v1=True, verbose=False"
    ),
    kopf.ProgressStorage.fetch: "self, *, key, body",
    kopf.ProgressStorage.store: "self, *, key, record, body, patch",
    kopf.ProgressStorage.purge: "self, *, key, body, patch",
    kopf.ProgressStorage.touch: "self, *, body, patch, value",
    kopf.ProgressStorage.clear: "self, *, essence",
    kopf.ProgressStorage.flush: "self",
    kopf.ObjectLogger: "*, body, settings",
    kopf.LocalObjectLogger: "*, body, settings",
    kopf.Patch: "src=None, /, body=None",
    kopf.Patch.as_json_patch: "self, body=None",
    kopf.DiffItem: "operation, field, old, new",
    kopf.Resource: (
        "group, version, plural, kind=None, singular=None, shortcuts=frozenset(), categories=frozenset(), "
        "subresources=frozenset(), namespaced=None, preferred=True, verbs=frozenset()"
    ),
    kopf.Resource.get_url: "self, *, server=None, namespace=None, name=None, subresource=None, params=None",
    kopf.cli.CLIControls: "ready_flag=None, stop_flag=None, vault=None, registry=None, settings=None, loop=None",
    kopf.cli.logging_options: "fn",
    kopf.cli.LogFormatParamType.convert: "self, value, param, ctx",
    kopf.testing.KopfRunner: "*args, reraise=True, timeout=None, registry=None, settings=None, **kwargs",
}


def parse(text: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(eval(f"lambda {text}: None")).parameters  # the text is of this file


def get_actual(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Get the parameters; the keywords that are described by a type, are as good as those in the signature."""
    actual = dict(inspect.signature(fn).parameters)
    hints = get_type_hints(fn, include_extras=True) if inspect.isfunction(fn) else {}
    for name, parameter in [*actual.items()]:
        if parameter.kind is parameter.VAR_KEYWORD and typing.get_args(hints.get(name)) == (OperatorOptions,):
            del actual[name]
            actual.update(inspect.signature(kopf.operator).parameters)
    return actual


@pytest.mark.parametrize(("fn", "text"), SIGNATURES.items(), ids=lambda arg: getattr(arg, "__qualname__", ""))
def test_signatures(fn: Callable[..., Any], text: str) -> None:
    promised, actual = parse(text), get_actual(fn)
    assert promised.keys() <= actual.keys()
    assert [name for name in actual if name in promised and promised[name].kind is not inspect.Parameter.KEYWORD_ONLY] \
        == [name for name in promised if promised[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    for name, parameter in promised.items():
        if parameter.default is not parameter.empty:
            assert actual[name].default == parameter.default or "<factory>" in repr(actual[name].default)
        assert actual[name].kind is parameter.kind
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    added = [parameter for name, parameter in actual.items() if name not in promised]
    assert all(item.kind in variable or item.default is not item.empty for item in added)


@pytest.mark.parametrize("login", [
    kopf.login_via_pykube, kopf.login_via_client, kopf.login_via_async_client, kopf.login_with_kubeconfig,
    kopf.login_with_service_account,
])
def test_login_functions_accept_all_kwargs_of_handlers(login: Callable[..., Any]) -> None:
    kinds = [parameter.kind for parameter in inspect.signature(login).parameters.values()]
    assert inspect.Parameter.VAR_KEYWORD in kinds


def test_options_of_operators_are_the_same_however_they_are_run() -> None:
    assert get_type_hints(OperatorOptions).keys() == inspect.signature(kopf.operator).parameters.keys()


@pytest.mark.parametrize("name", ["run", "freeze", "resume"])
def test_commands_are_offered_to_python(name: str) -> None:
    assert getattr(kopf.cli, name) is kopf.cli.main.commands[name]


def test_settings_by_the_names_of_the_original() -> None:
    settings = kopf.OperatorSettings()
    settings.queueing._batch_window = 3
    assert settings.queueing.batch_window == settings.queueing._batch_window == 3


# --- the members ---


@pytest.mark.parametrize(("cls", "members"), [
    (kopf.LogFormat, {
        "PLAIN": "%(message)s", "JSON": "-json-",
        "FULL": "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s",
    }),
    (kopf.ErrorsMode, {"IGNORED": 1, "TEMPORARY": 2, "PERMANENT": 3}),
    (kopf.DiffOperation, {"ADD": "add", "CHANGE": "change", "REMOVE": "remove"}),
    (kopf.Reason, {
        "CREATE": "create", "UPDATE": "update", "DELETE": "delete", "RESUME": "resume", "NOOP": "noop", "FREE": "free",
        "GONE": "gone",
    }),
    (kopf.DaemonStoppingReason, {
        "DONE": 1, "FILTERS_MISMATCH": 2, "RESOURCE_DELETED": 4, "OPERATOR_PAUSING": 8, "OPERATOR_EXITING": 16,
        "DAEMON_SIGNALLED": 32, "DAEMON_CANCELLED": 64, "DAEMON_ABANDONED": 128,
    }),
])
def test_enumerations(cls: Any, members: dict[str, Any]) -> None:
    assert {member.name: member.value for member in cls} == members


@pytest.mark.parametrize(("cls", "keys"), [
    (kopf.RawEvent, "type object"),
    (kopf.RawBody, "apiVersion kind metadata spec status"),
    (kopf.BodyEssence, "metadata spec status"),
    (kopf.ObjectReference, "apiVersion kind namespace name uid"),
    (kopf.OwnerReference, "controller blockOwnerDeletion apiVersion kind name uid"),
    (kopf.WebhookClientConfig, "caBundle url service"),
    (kopf.WebhookClientConfigService, "namespace name path port"),
    (kopf.UserInfo, "username uid groups"),
    (kopf.ProgressRecord, "started stopped delayed purpose retries success failure message subrefs"),
])
def test_typed_dictionaries(cls: type, keys: str) -> None:
    assert typing.is_typeddict(cls)
    assert set(keys.split()) <= cls.__annotations__.keys()


@pytest.mark.parametrize(("cls", "names"), [
    (kopf.Body, "metadata meta spec status"),
    (kopf.Meta, "labels annotations uid name namespace creation_timestamp deletion_timestamp"),
    (kopf.Patch, "metadata meta spec status fns"),
    (kopf.DiffItem, "op operation field old new"),
    (kopf.testing.KopfRunner, "future output stdout stdout_bytes stderr stderr_bytes exit_code exception exc_info"),
])
def test_attributes_of_classes(cls: type, names: str) -> None:
    assert set(names.split()) <= {*dir(cls), *get_type_hints(cls)}


@pytest.mark.parametrize("cls", [
    kopf.WebhookServer, kopf.WebhookK3dServer, kopf.WebhookMinikubeServer, kopf.WebhookDockerDesktopServer,
    kopf.WebhookAutoServer, kopf.WebhookAutoTunnel, kopf.WebhookNgrokTunnel,
])
def test_options_of_webhook_servers_are_their_attributes(cls: Any) -> None:
    server = cls(addr="0.0.0.0", port=54321, path="some/path")
    assert (server.addr, server.port, server.path) == ("0.0.0.0", 54321, "some/path")
    defaults = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    actual = {name: getattr(cls(), name) for name in defaults}
    assert actual == {**defaults, **({"extra_sans": actual["extra_sans"]} if "extra_sans" in defaults else {})}
    assert not actual.get("extra_sans")


@pytest.mark.parametrize(("cls", "host"), [
    (kopf.WebhookServer, None),
    (kopf.WebhookK3dServer, "host.k3d.internal"),
    (kopf.WebhookMinikubeServer, "host.minikube.internal"),
    (kopf.WebhookDockerDesktopServer, "host.docker.internal"),
])
def test_default_hosts_of_webhook_servers(cls: type[kopf.WebhookServer], host: str | None) -> None:
    assert host == cls.DEFAULT_HOST


@pytest.mark.parametrize(("cls", "parent"), [
    (kopf.LoginError, Exception),
    (kopf.PermanentError, Exception),
    (kopf.TemporaryError, Exception),
    (kopf.AdmissionError, kopf.PermanentError),
    (kopf.HandlerTimeoutError, kopf.PermanentError),
    (kopf.HandlerRetriesError, kopf.PermanentError),
    (kopf.WebhookK3dServer, kopf.WebhookServer),
    (kopf.WebhookMinikubeServer, kopf.WebhookServer),
    (kopf.WebhookDockerDesktopServer, kopf.WebhookServer),
    (kopf.WebhookAutoServer, kopf.WebhookServer),
    (kopf.LocalObjectLogger, kopf.ObjectLogger),
    (kopf.SmartProgressStorage, kopf.MultiProgressStorage),
    (kopf.Memo, dict),
    (kopf.Patch, dict),
    (kopf.Index, Mapping),
    (kopf.Spec, Mapping),
    (kopf.Status, Mapping),
    (kopf.Meta, Mapping),
    (kopf.Body, Mapping),
    (kopf.DiffOperation, str),
    (kopf.Reason, str),
], ids=lambda cls: cls.__name__)
def test_inheritance(cls: type, parent: type) -> None:
    assert issubclass(cls, parent)
