"""
Rivals: other operators that handle the same objects, and do not know about this one.

Two signs reveal them: an object that this operator handles is marked as handled in another state than here; or it was
marked so while this operator was handling it. Both also happen briefly at the beginning and at the end of a rollout,
and when a backup is restored. So the warning needs several signs, neither too close to each other nor too far apart.

Operators that know of each other do not work at once; but they need a moment to notice each other, and longer if their
streams are silent or there is no peering. Then both handle the object in different states, and the last writer has not
always seen the latest state. Another operator leaves the same traces as this one: the last handled configuration, and
the progress of the handlers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Mapping, Set
from typing import Any

from kopf._controller.runtime import Runtime
from kopf._handlers.handlers import ChangingHandler
from kopf._settings.settings import PersistenceSettings
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.fields import FieldPath, resolve
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_ENOUGH = 3
"""The number of signs before the warning."""

_TOO_CLOSE = 120.0
"""A sign within this time after the previous one, in seconds, counts as the same: e.g. the same rollout."""

_TOO_FAR = 3600.0
"""A sign later than this after the previous one, in seconds, is unrelated to it."""

_ANNOTATIONS = ("fieldsV1", "f:metadata", "f:annotations")

_MAX_LENGTH = 100
"""The maximal length of shown texts of others, in characters."""

_DOCS = "docs/peering.md#two-operators-at-once"


class Rivals:
    """The signs of other operators that handle the objects of one resource."""

    def __init__(self, runtime: Runtime, resource: Resource) -> None:
        self._runtime = runtime
        self._resource = resource
        self._count = 0
        self._noticed_at = 0.0
        runtime.pause.subscribe(self.forget)  # during pauses, other operators handle everything by design

    def forget(self) -> None:
        """Forget the signs: until now, others have handled the objects by design."""
        self._count = 0

    def note(self, obj: KubeObject) -> None:
        """Note a sign that another operator has handled the object."""
        now = asyncio.get_running_loop().time()
        passed = now - self._noticed_at
        if self._count and passed < _TOO_CLOSE:
            return
        self._count = 1 if passed >= _TOO_FAR else self._count + 1
        self._noticed_at = now
        if self._count >= _ENOUGH and self._runtime.warnings.is_new(("rivals", self._resource)):
            self._warn(obj)

    def _warn(self, obj: KubeObject) -> None:
        prefixes = [name for name in obj.head.annotations or () if name.endswith("/last-handled-configuration")]
        logger.warning(
            "Another operator keeps handling the same objects of %r, e.g. %s: both call their handlers for the same "
            "changes. This operator is %s; the other one writes as %s. If they have a peering, this command names it: "
            "kopf explain %s %s%s. Stop one of them; or connect them by a peering, so that only one works at a time; "
            "or give each its own objects, by selectors. If they do different things, give them different storages "
            "and finalizers in settings.persistence. See %s",
            self._resource,
            f"{obj.head.namespace}/{obj.head.name}" if obj.head.namespace else obj.head.name,
            _identify_us(),
            identify_writer(obj, prefixes),
            self._resource.plural,
            obj.head.name,
            f" -n {obj.head.namespace}" if obj.head.namespace else "",
            _DOCS,
        )


def _identify_us() -> str:
    import getpass  # rarely needed
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # containers often run as users without names
        user = str(os.getuid())
    return os.environ.get("POD_ID") or f"{user}@{socket.gethostname()} (process {os.getpid()})"


def identify_writer(obj: KubeObject, annotations: list[str]) -> str:
    """Name the last client that has marked the object as handled, and the time, as far as the server tells."""
    marks = {f"f:{name}" for name in annotations}
    entries = [entry for entry in _get_managed_fields(obj) if marks & _get_keys(entry, _ANNOTATIONS)]
    if not entries:
        return "somebody unknown"
    last = max(entries, key=lambda entry: str(entry.get("time")))
    return f"{str(last.get('manager'))[:_MAX_LENGTH]!r} (last time at {str(last.get('time'))[:_MAX_LENGTH]})"


def _get_managed_fields(obj: KubeObject) -> list[Mapping[str, Any]]:
    entries = resolve(codec.decode(obj.raw), ("metadata", "managedFields"))
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _get_keys(entry: Mapping[str, Any], path: FieldPath) -> Set[str]:
    """Return the keys at the path, if there are any: other API servers can send entries of any form."""
    value = resolve(entry, path)
    return value.keys() if isinstance(value, Mapping) else frozenset()


def is_superseded(
    obj: KubeObject,
    *,
    persistence: PersistenceSettings,
    handlers: Collection[ChangingHandler],
    before: KubeObject,
    outgoing: Patch,
) -> bool:
    """
    Tell if the traces on the object match neither the state before nor our outgoing patch.

    Our traces can be there already, if only the response to our patch was lost. Absent traces mean nothing: they vanish
    when others replace the whole object, and this must not repeat the handlers.
    """
    after = outgoing.apply_to(before)
    traces, *known = (_get_traces(Body(state), persistence, handlers) for state in (obj, before, after))
    return any(trace is not None and trace not in others for trace, *others in zip(traces, *known, strict=True))


def _get_traces(body: Body, persistence: PersistenceSettings, handlers: Collection[ChangingHandler]) -> list[object]:
    progress = persistence.progress_storage
    records: list[object] = [progress.fetch(key=handler.id, body=body) for handler in handlers]
    return [persistence.diffbase_storage.fetch(body=body), *records]
