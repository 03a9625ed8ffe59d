"""
What is served besides resources: the health, the version, the list of all paths.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from kopf_cluster import codec
from kopf_cluster.access.tokens import ALGORITHM, AUDIENCE, Tokens
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.kinds.resources import kubernetes_version
from kopf_cluster.requests import Answer, Request
from kopf_cluster.statuses import group_resource
from kopf_cluster.store.storage import Store

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


def answer(request: Request, registry: Registry) -> Answer | None:
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


# What the server tells of itself to Prometheus: how many requests were answered, and how many objects there are.
#
# The names are those of kube-apiserver, see "Kubernetes Metrics Reference"; there are hundreds more in a real server.

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


class Metrics:
    """Answers to those who scrape."""

    def __init__(self, store: Store, registry: Registry, counters: Callable[[], Counters]) -> None:
        self._store = store
        self._registry = registry
        self._counters = counters

    def answer(self, request: Request) -> Answer | None:
        """Answer if the path is that of the metrics."""
        if request.path != ("metrics",):
            return None
        text = _REQUESTS + "".join(self._count_requests()) + _OBJECTS + "".join(self._count_objects())
        return Answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")

    def _count_requests(self) -> Iterator[str]:
        for (verb, resource, code), count in sorted(self._counters().items()):
            plural, _, subresource = resource.partition("/")
            yield (
                f'apiserver_request_total{{code="{code}",component="apiserver",resource="{plural}",'
                f'subresource="{subresource}",verb="{_VERBS.get(verb, verb.upper())}"}} {count}\n'
            )

    def _count_objects(self) -> Iterator[str]:
        for kind in self._registry.unique_kinds():
            if kind.is_stored:
                yield (
                    f'apiserver_storage_objects{{resource="{group_resource(kind)}"}} '
                    f"{self._store.bucket(kind.bucket).count()}\n"
                )


# Who issues the tokens of service accounts, and by which keys they can be verified: the documents of OpenID Connect.
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
