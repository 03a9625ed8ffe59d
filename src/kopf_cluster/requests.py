"""
Users, requests, and answers, independent of any HTTP library; and the meaning of URLs.

The structure of URLs is that of the Kubernetes "API Concepts" ("Resource URIs").
"""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from kopf_cluster import codec, statuses

SUPERUSERS: Final = "system:masters"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A user. The groups must be complete, with ``system:authenticated`` or ``system:unauthenticated``."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        """Return the ``UserInfo`` of reviews."""
        info: dict[str, Any] = {
            "username": self.name,
            "uid": self.uid,
            "groups": list(self.groups),
            "extra": {key: list(values) for key, values in self.extra.items()},
        }
        return {key: value for key, value in info.items() if value}


ADMINISTRATOR: Final = User("kubernetes-admin", (SUPERUSERS, "system:authenticated"))
"""The user in the kubeconfig."""

CONTROL_LOOPS: Final = User("system:kube-controller-manager", (SUPERUSERS, "system:authenticated"))
"""The user of the control loops: garbage collection, namespaces, simulated workloads."""

asking: Final[contextvars.ContextVar[User]] = contextvars.ContextVar("asking", default=ADMINISTRATOR)
"""The user of the current request, for code that has no access to the request itself."""

_FALSE: Final = frozenset({"0", "false"})
_MAX_NUMBER: Final = 2**63

# The maximal length of all warnings of an answer together; if they are longer, the maximal length of each.
_MAX_WARNINGS: Final = 4096
_MAX_WARNING: Final = 256

_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Identity(msgspec.Struct, frozen=True):
    """The identity in a request, before the authentication."""

    path: str
    authorization: str = ""
    """The header of this name."""
    impersonation: Mapping[str, Sequence[str]] = {}
    """The headers of impersonation, with their names in lower case."""
    certificate: Sequence[tuple[str, str]] = ()
    """The subject of the verified certificate of the client; empty if there is none."""


class Request(msgspec.Struct, frozen=True):
    """One request, with the path split and unquoted."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    accept: str = ""
    content_type: str = ""
    body: bytes = b""
    user: User = ADMINISTRATOR
    agent: str = ""
    """The header ``User-Agent``."""
    raw_query: str = ""
    """The original query, with repeated parameters."""

    def flag(self, name: str) -> bool:
        """Whether the flag is on; as in the API server, all but "false" and "0" turns it on, even no value."""
        return name in self.query and self.query[name].lower() not in _FALSE

    def number(self, name: str) -> int | None:
        """Return a number from the query, or none; negative ones are zeros. Refuse everything else."""
        text = self.query.get(name)
        if not text:
            return None
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit():
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        if len(digits) > 19 or int(digits) >= _MAX_NUMBER:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
        return max(int(text), 0)

    def read_timeout(self) -> float:
        """Return the time that the client waits for the answer, in seconds; zero for no limit."""
        text = self.query.get("timeout")
        if not text:
            return 0.0
        try:
            return max(parse_duration(text), 0.0)
        except ValueError as error:
            raise statuses.bad_request(f"invalid timeout specified in the request URL - {error}") from None


class Answer(msgspec.Struct, frozen=True):
    """A complete answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}
    name: str = ""
    """The name of the object in answers to creations, whose requests have no name in the URL."""


def refuse(status: statuses.APIStatus) -> Answer:
    """Make the answer of a refusal."""
    name = str((status.details or {}).get("name") or "")
    return Answer(status.code, codec.encode(status.as_object()), headers=status.headers, name=name)


class Stream(Protocol):
    """An answer that continues as a stream."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content_type(self) -> str: ...

    def chunks(self) -> AsyncGenerator[bytes, None]: ...


def with_warnings(
    headers: Mapping[str, str],
    before: Iterable[str] = (),
    after: Iterable[str] = (),
) -> Mapping[str, str]:
    """Return the headers with more warnings for the client, before and after the existing ones."""
    known = [headers["Warning"]] if "Warning" in headers else []
    texts = [*map(_warning, _shorten(before)), *known, *map(_warning, _shorten(after))]
    return {**headers, "Warning": ", ".join(texts)} if texts else headers


def _shorten(texts: Iterable[str]) -> list[str]:
    """Shorten warnings that are too long for headers, as a real server does; omit the rest, and control characters."""
    kept = [text for text in texts if not _CONTROL_CHARACTERS.search(text)]
    if sum(map(len, kept)) > _MAX_WARNINGS:
        kept = [text[:_MAX_WARNING] for text in kept]
        lengths = itertools.accumulate(map(len, kept))
        kept = [text for text, length in zip(kept, lengths, strict=True) if length <= _MAX_WARNINGS]
    return kept


def _warning(text: str) -> str:
    return '299 - "{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


class Call(msgspec.Struct, frozen=True):
    """The meaning of a request: a verb on a resource, or (without a resource) on the path itself."""

    verb: str
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""

    @property
    def resource(self) -> str:
        """The resource in the form of RBAC rules and metrics, e.g. ``pods/status``; empty for other paths."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def resolve(request: Request) -> Call:
    """Return the meaning of the URL and the method, without checking that there is such a resource."""
    path = request.path
    if len(path) >= 3 and path[0] == "api":
        return _resolve_resource(request, "", path[1], path[2:])
    if len(path) >= 4 and path[0] == "apis":
        return _resolve_resource(request, path[1], path[2], path[3:])
    return Call(request.method.lower())


def _resolve_resource(request: Request, group: str, version: str, rest: tuple[str, ...]) -> Call:
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *excess = (*rest, "", "", "")[: max(len(rest), 3)]
    if excess:
        subresource = "/".join([subresource, *excess])
    return Call(_choose_verb(request, bool(name)), group, version, plural, namespace, name or None, subresource)


def _choose_verb(request: Request, named: bool) -> str:
    method = request.method
    if method in ("GET", "HEAD"):
        if named:
            return "get"
        return "watch" if request.flag("watch") else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _VERBS.get(method, method.lower())


# Durations as Go writes them: ``1h30m``, ``1.5s``, ``300ms``.

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_SECONDS)})")
_DURATION: Final = re.compile(rf"[-+]?(0|({_PART.pattern})+)")


def parse_duration(text: str) -> float:
    """Return the duration in seconds, e.g. for ``1m30s``; raise `ValueError` for any other text."""
    if _DURATION.fullmatch(text) is None:
        raise ValueError(f"time: invalid duration {json.dumps(text, ensure_ascii=False)}")
    seconds = sum(float(part[1]) * _SECONDS[part[2]] for part in _PART.finditer(text))
    return -seconds if text.startswith("-") else seconds
