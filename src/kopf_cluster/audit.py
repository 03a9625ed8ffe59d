"""
Who did what: the latest requests and their outcomes, in memory.

See "Auditing" of the Kubernetes documentation: it is what the events of the level "Metadata" tell, in short.
"""

from __future__ import annotations

import collections
from typing import Final

import msgspec

from kopf_cluster.requests import Answer, Call, User

LIMIT: Final = 10_000
"""How many requests are remembered."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was answered."""

    user: str
    """The name of the user, or of whom they act as; nothing if it is not known."""
    verb: str
    """The verb of the API: get, list, watch, create, update, patch, delete, deletecollection; or that of HTTP."""
    group: str
    resource: str
    """The plural name; nothing for requests that are not about resources."""
    subresource: str
    namespace: str
    """Nothing for cluster-wide resources, and for requests to all namespaces."""
    name: str
    """Nothing for requests to many objects, and for refused creations with a generated name."""
    path: str
    """What is asked if it is no resource, e.g. ``/version``."""
    code: int
    """The code of the answer; for watches, that of its begin."""
    agent: str
    """What the client calls itself: the header ``User-Agent``."""


class Audit:
    """The latest requests. They are only noted down when they are answered, and described when somebody asks."""

    def __init__(self) -> None:
        self._entries: collections.deque[tuple[User | None, Call, int, str, str, str]] = collections.deque(maxlen=LIMIT)

    def note(self, user: User | None, call: Call, answer: Answer, *, agent: str, path: str = "") -> None:
        """Remember a request with its answer, the status of which is enough if it is a stream."""
        # The name of what is created is not in the URL. The path is not kept where the call tells all of it.
        self._entries.append((user, call, answer.status, agent, call.name or answer.name, "" if call.plural else path))

    def clear(self) -> None:
        self._entries.clear()

    def describe(self) -> list[AuditRecord]:
        """Give all that is remembered, the oldest first."""
        return [
            AuditRecord(
                user="" if user is None else user.name,
                verb=call.verb,
                group=call.group,
                resource=call.plural,
                subresource=call.subresource,
                name=name,
                path=path,
                namespace=call.namespace or _own_namespace(call),
                code=code,
                agent=agent,
            )
            for user, call, code, agent, name, path in list(self._entries)
        ]


def _own_namespace(call: Call) -> str:
    """A namespace is in itself, as for roles."""
    return call.name or "" if (call.group, call.plural) == ("", "namespaces") else ""
