"""
The clients of a fault, by the user or the user agent; all clients by default. And guarded writes.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import yaml

from kopf_cluster import codec, yamls
from kopf_cluster.requests import Request


def check_pattern(pattern: str | None) -> None:
    """Raise `ValueError` if the pattern is not a regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None


def is_of(request: Request, user: str | None, agent: str | None) -> bool:
    """Whether the request is from this user, and its user agent contains the regular expression."""
    return (user is None or user == request.user.name) and (
        agent is None or re.search(agent, request.agent) is not None
    )


class Clients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some or all clients."""

    user: str | None = None
    agent: str | None = None

    def __post_init__(self) -> None:
        check_pattern(self.agent)

    def include(self, request: Request) -> bool:
        return is_of(request, self.user, self.agent)


EVERYBODY = Clients()


# Guarded writes: those for one version of the object only, which expect conflicts.

_PATH: Final = "/metadata/resourceVersion"


def is_guarded(request: Request) -> bool:
    """Whether the write names the version: in the object, in a patch of any type, or in preconditions.

    Writes in protobuf count as unguarded, and so do broken ones.
    """
    if request.method in ("GET", "HEAD") or not request.body:
        return False
    match _decode(request.body):
        case [*operations]:
            return any(
                isinstance(item, dict) and item.get("path") == _PATH and item.get("op") in ("test", "replace")
                for item in operations
            )
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
