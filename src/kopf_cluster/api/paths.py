"""
What is served besides resources: the health, the version, the list of all paths.
"""
from __future__ import annotations

import platform
from typing import Final

from kopf_cluster import codec
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.kinds.resources import kubernetes_version
from kopf_cluster.requests import Answer, Request

VERSION: Final = {
    "major": kubernetes_version().split(".")[0], "minor": kubernetes_version().split(".")[1],
    "emulationMajor": kubernetes_version().split(".")[0], "emulationMinor": kubernetes_version().split(".")[1],
    "gitVersion": f"v{kubernetes_version()}+local", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": platform.python_implementation(),
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
_CHECKS: Final = ("ping", "log", "etcd", "informer-sync")
_FIXED: Final = ("/.well-known/openid-configuration", "/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2",
                 "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version")


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
