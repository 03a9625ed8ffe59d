"""
Discovery: the groups, versions, and resources, in the legacy and in the aggregated form; and other paths besides
resources: the health, the version, the list of all paths, metrics.

See "Discovery API" of the Kubernetes documentation. The aggregated form is what current clients ask for first.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import platform
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from kopf_cluster import codec, encodings, statuses
from kopf_cluster.access.tokens import ALGORITHM, AUDIENCE, Tokens
from kopf_cluster.encodings import parse_accept
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import CORE_VERSION, Registry
from kopf_cluster.kinds.resources import Subresource, kubernetes_version
from kopf_cluster.requests import Answer, Request
from kopf_cluster.statuses import group_resource
from kopf_cluster.store.storage import Store

_AGGREGATED: Final = "{media};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_VERSIONS: Final = frozenset({"v2", "v2beta1"})
_CORE: Final = ""


class _Choice(msgspec.Struct, frozen=True):
    """The encoding of the answer, and the version of its aggregated form; the version is empty for the legacy form."""

    media: str
    version: str = ""


def _choose(accept: str, versions: Collection[str] = _VERSIONS) -> _Choice:
    """Choose the most wanted form that is available; the aggregated form has only these versions."""
    for clause in parse_accept(accept):
        for media in filter(clause.covers, encodings.SERVED):
            if clause.is_plain:
                return _Choice(media)
            wanted = {name: clause.parameters.get(name, "") for name in ("g", "v", "as")}
            if (
                media != encodings.YAML
                and wanted["v"] in versions
                and wanted["g"] == "apidiscovery.k8s.io"
                and wanted["as"] == "APIGroupDiscoveryList"
            ):
                return _Choice(media, wanted["v"])
    raise statuses.not_acceptable(encodings.SERVED)


class Discovery:
    """Answers requests about the served resources."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answer(self, request: Request, address: str) -> Answer | None:
        """Answer if the path is one of the discovery."""
        match request.path:
            case ("api",):
                return self._core(request, address)
            case ("apis",):
                return self._groups(request)
            case ("apis", group) if group and self._registry.versions(group):
                return _plain(self._group(group), request)
            case ("api", version) if self._registry.kinds(_CORE, version):
                return _plain(self._resources(_CORE, version), request)
            case ("apis", group, version) if group and self._registry.kinds(group, version):
                return _plain(self._resources(group, version), request)
        return None

    def _core(self, request: Request, address: str) -> Answer:
        choice = _choose(request.accept)
        if choice.version:
            return self._aggregate([_CORE], choice)
        return _encode(
            {
                "kind": "APIVersions",
                "versions": [CORE_VERSION],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
            },
            choice,
        )

    def _groups(self, request: Request) -> Answer:
        names = [group for group in self._registry.groups() if group != _CORE]
        choice = _choose(request.accept)
        if choice.version:
            return self._aggregate(names, choice)
        groups = [
            {key: value for key, value in self._group(name).items() if key not in ("kind", "apiVersion")}
            for name in names
        ]
        return _encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}, choice)

    def _group(self, group: str) -> Obj:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version} for version in self._registry.versions(group)
        ]
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": group,
            "versions": versions,
            "preferredVersion": versions[0],
        }

    def _resources(self, group: str, version: str) -> Obj:
        resources: list[Obj] = []
        for kind in self._registry.kinds(group, version):
            main: Obj = {
                "name": kind.plural,
                "singularName": kind.singular,
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": list(kind.verbs),
            }
            main = _with_names(main, kind)
            if kind.is_stored and "create" in kind.verbs:
                main["storageVersionHash"] = _hash_storage_version(kind)
            resources.append(main)
            resources.extend(
                _list_subresource(kind, name, subresource) for name, subresource in kind.listed_subresources.items()
            )
        group_version = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}

    def _aggregate(self, groups: list[str], choice: _Choice) -> Answer:
        items = [
            {
                "metadata": {"name": group, "creationTimestamp": None},
                "versions": [self._aggregate_version(group, name) for name in self._registry.versions(group)],
            }
            for group in groups
        ]
        document = {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{choice.version}",
            "metadata": {},
            "items": items,
        }
        content_type = _AGGREGATED.format(media=choice.media, version=choice.version)
        return msgspec.structs.replace(_encode(document, choice), content_type=content_type)

    def _aggregate_version(self, group: str, version: str) -> Obj:
        return {
            "version": version,
            "freshness": "Current",
            "resources": [_aggregate_kind(kind) for kind in self._registry.kinds(group, version)],
        }


def _hash_storage_version(kind: Kind) -> str:
    """Return the hash of the version in which the objects are stored."""
    group, _, version = kind.storage_version.rpartition("/")
    group = "" if group == "core" else group or kind.group
    return _hash(f"{group}/{version or kind.version}/{kind.kind}")


@functools.cache
def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _list_subresource(kind: Kind, name: str, subresource: Subresource) -> Obj:
    """Describe a subresource; omit the group and the version if they match the list."""
    is_own = (subresource.group, subresource.version) == (kind.group, kind.version)
    origin = {} if is_own else {"group": subresource.group, "version": subresource.version}
    return {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        **origin,
        "kind": subresource.kind,
        "verbs": list(subresource.verbs),
    }


def _aggregate_kind(kind: Kind) -> Obj:
    response = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    main: Obj = {
        "resource": kind.plural,
        "responseKind": response,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    subresources = [
        {
            "subresource": name,
            "verbs": list(subresource.verbs),
            "responseKind": {
                "group": subresource.group,
                "version": subresource.version,
                "kind": subresource.kind,
            },
        }
        for name, subresource in kind.listed_subresources.items()
    ]
    return _with_names({**main, "subresources": subresources} if subresources else main, kind)


def _with_names(resource: Obj, kind: Kind) -> Obj:
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return resource


def _plain(document: Obj, request: Request) -> Answer:
    return _encode(document, _choose(request.accept, versions=()))


def _encode(document: Obj, choice: _Choice) -> Answer:
    return encodings.transcode(Answer(200, codec.encode(document)), choice.media)


VERSION: Final = {
    "major": kubernetes_version().split(".")[0],
    "minor": kubernetes_version().split(".")[1],
    "emulationMajor": kubernetes_version().split(".")[0],
    "emulationMinor": kubernetes_version().split(".")[1],
    "gitVersion": f"v{kubernetes_version()}+local",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": platform.python_implementation(),
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
_CHECKS: Final = ("ping", "log", "etcd", "informer-sync")
_FIXED: Final = (
    "/.well-known/openid-configuration",
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
)


def answer_path(request: Request, registry: Registry) -> Answer | None:
    """Answer if the path is one of these."""
    match request.path:
        case ():
            return Answer(200, codec.encode({"paths": _list_paths(registry)}))
        case ("version",):
            return Answer(200, codec.encode(VERSION))
        case (name,) if name in _HEALTH:
            return _report(name, verbose="verbose" in request.query)
        case (name, check) if name in _HEALTH and check in _CHECKS:
            return _text("ok")
    return None


def _report(name: str, *, verbose: bool) -> Answer:
    if not verbose:
        return _text("ok")
    return _text("".join(f"[+]{check} ok\n" for check in _CHECKS) + f"{name} check passed\n")


def _text(text: str) -> Answer:
    return Answer(200, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})


def _list_paths(registry: Registry) -> list[str]:
    paths = list(_FIXED)
    for group in registry.groups():
        paths += [f"/apis/{group}/{version}" if group else f"/api/{version}" for version in registry.versions(group)]
        paths += [f"/apis/{group}"] if group else []
    return sorted(paths)


# Metrics for Prometheus: the numbers of answered requests, and of objects.
#
# A real server has hundreds more, see "Kubernetes Metrics Reference".

Counters: TypeAlias = Mapping[tuple[str, str, int], int]

_VERBS: Final = {"create": "POST", "update": "PUT"}
_REQUESTS: Final = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, resource and HTTP code.
# TYPE apiserver_request_total counter
"""
_OBJECTS: Final = """\
# HELP apiserver_storage_objects [STABLE] Number of stored objects split by kind.
# TYPE apiserver_storage_objects gauge
"""


def answer_metrics(request: Request, store: Store, registry: Registry, counters: Counters) -> Answer | None:
    """Answer if the path is that of the metrics."""
    if request.path != ("metrics",):
        return None
    text = _REQUESTS + "".join(_show_requests(counters)) + _OBJECTS + "".join(_show_objects(store, registry))
    return Answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")


def _show_requests(counters: Counters) -> Iterator[str]:
    for (verb, resource, code), count in sorted(counters.items()):
        plural, _, subresource = resource.partition("/")
        yield (
            f'apiserver_request_total{{code="{code}",component="apiserver",resource="{plural}",'
            f'subresource="{subresource}",verb="{_VERBS.get(verb, verb.upper())}"}} {count}\n'
        )


def _show_objects(store: Store, registry: Registry) -> Iterator[str]:
    for kind in registry.unique_kinds():
        if kind.is_stored:
            count = store.bucket(kind.bucket).count()
            yield f'apiserver_storage_objects{{resource="{group_resource(kind)}"}} {count}\n'


# The documents of OpenID Connect: the issuer of the tokens of service accounts, and its keys.
#
# See "Service account issuer discovery" of the Kubernetes documentation.

_CACHED: Final = {"Cache-Control": "public, max-age=3600"}


def answer_issuer(request: Request, address: str, tokens: Tokens) -> Answer | None:
    """Answer if the path is one of these."""
    match request.path:
        case (".well-known", "openid-configuration"):
            document = {
                "issuer": AUDIENCE,
                "jwks_uri": f"https://{address}/openid/v1/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [ALGORITHM],
            }
            return Answer(200, codec.encode(document), headers=_CACHED)
        case ("openid", "v1", "jwks"):
            keys = codec.encode({"keys": [tokens.signer.public_key]})
            return Answer(200, keys, "application/jwk-set+json", _CACHED)
    return None
