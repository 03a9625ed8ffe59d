"""
Which writes are guarded: meant only for one version of the object, so that they expect conflicts.
"""
from __future__ import annotations

from typing import Any, Final

import yaml

from kopf_cluster import codec, yamls
from kopf_cluster.requests import Request

_PATH: Final = "/metadata/resourceVersion"


def is_guarded(request: Request) -> bool:
    """Tell whether it names the version: in the object, in a patch of any type, or in preconditions.

    Bodies in protobuf are taken for unguarded, as those that cannot be read at all.
    """
    if request.method in ("GET", "HEAD") or not request.body:
        return False
    match _decode(request.body):
        case [*operations]:
            return any(isinstance(item, dict) and item.get("path") == _PATH and item.get("op") in ("test", "replace")
                       for item in operations)
        case {"metadata": {"resourceVersion": str(version)}} | {"preconditions": {"resourceVersion": str(version)}}:
            return bool(version)
    return False


def _decode(body: bytes) -> Any:
    try:
        return codec.decode(body)
    except (codec.DecodeError, RecursionError):
        pass
    try:
        return yamls.load(body)
    except yaml.YAMLError:
        return None
