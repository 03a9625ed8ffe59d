"""
The audit: the latest requests and their outcomes, in memory.

The records contain the essence of audit events of the level "Metadata", see "Auditing" in the Kubernetes documentation.
"""

from __future__ import annotations

import collections
from typing import Final

import msgspec

from kopf_cluster.requests import Answer, Call, User

LIMIT: Final = 10_000
"""The maximal number of records."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of one answered request; inapplicable fields are empty texts."""

    user: str
    """The name of the user, or of the impersonated one; empty if unknown."""
    verb: str
    """The verb of the API: get, list, watch, create, update, patch, delete, deletecollection; or the method of HTTP."""
    group: str
    """The API group; empty for the core one."""
    resource: str
    """The plural name; empty for requests that are not about resources."""
    subresource: str
    """The subresource, e.g. ``status``; empty for the object itself."""
    namespace: str
    """Empty for cluster-wide resources, and for requests to all namespaces."""
    name: str
    """Empty for requests to many objects, and for refused creations with a generated name."""
    path: str
    """The path of a request that is not about resources, e.g. ``/version``."""
    code: int
    """The HTTP status of the answer; of a watch, when it begins."""
    agent: str
    """The header ``User-Agent``."""


class Audit:
    """The latest requests, which become records only on demand."""

    def __init__(self) -> None:
        self._entries: collections.deque[tuple[User | None, Call, int, str, str, str]] = collections.deque(maxlen=LIMIT)

    def note(self, user: User | None, call: Call, answer: Answer, *, agent: str, path: str = "") -> None:
        """Remember a request with its answer; of a stream, only the status matters."""
        # The name of what is created is not in the URL. The path is not kept where the call tells it.
        self._entries.append((user, call, answer.status, agent, call.name or answer.name, "" if call.plural else path))

    def clear(self) -> None:
        self._entries.clear()

    def describe(self) -> list[AuditRecord]:
        """Return all records, the oldest first."""
        return [
            AuditRecord(
                user="" if user is None else user.name,
                verb=call.verb,
                group=call.group,
                resource=call.plural,
                subresource=call.subresource,
                name=name,
                path=path,
                # As for roles, a namespace is in itself.
                namespace=call.namespace or ((call.group, call.plural) == ("", "namespaces") and call.name) or "",
                code=code,
                agent=agent,
            )
            for user, call, code, agent, name, path in list(self._entries)
        ]
