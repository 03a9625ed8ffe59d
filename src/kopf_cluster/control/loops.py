"""
What all control loops have in common: the queue of what they have to do, one piece after another, and how they read
and write objects: by the bucket and the key, with what may be gone seen as absent.

No object can end the control loops: whatever fails is logged, and is tried again later, while all the rest goes on.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final

from kopf_cluster import codec, sessions, statuses
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.store.storage import Change, Key, Record, Store
from kopf_cluster.writes.write_options import DeleteOptions
from kopf_cluster.writes.writing import Writer

logger = logging.getLogger("kopf.cluster")

# How many pieces are done in a row before the others on the event loop get their turn.
_TURN: Final = 20

# When to try again what depends on others, or has failed, in seconds; twice as late with every further failure.
_RETRY: Final = 1.0
_MAX_RETRY: Final = 1000.0  # as in kube-controller-manager


class WorkQueue:
    """Pieces of work in the order of arrival; a piece that already waits is not queued twice."""

    def __init__(self) -> None:
        self._pieces: collections.OrderedDict[Hashable, Callable[[], None]] = collections.OrderedDict()
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._failures: collections.Counter[Hashable] = collections.Counter()
        self._wakeup = asyncio.Event()

    def add(self, name: Hashable, piece: Callable[[], None]) -> None:
        self._pieces.setdefault(name, piece)
        self._wakeup.set()

    def add_later(self, delay: float, name: Hashable, piece: Callable[[], None]) -> None:
        """Queue the piece after so many seconds by the loop's clock. A piece that is planned already, is not moved."""
        if name not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(delay, self._add_planned, name, piece)

    def _add_planned(self, name: Hashable, piece: Callable[[], None]) -> None:
        del self._timers[name]
        self.add(name, piece)

    async def close(self) -> None:
        """Forget what is planned for later, and what is being asked."""
        for task in self._questions:
            task.cancel()
        if self._questions:
            await asyncio.wait(self._questions)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def run(self) -> None:
        """Do the work until cancelled."""
        while True:
            await self._wakeup.wait()
            for _ in range(_TURN):
                if not self._pieces:
                    self._wakeup.clear()
                    break
                name, piece = self._pieces.popitem(last=False)
                try:
                    self._do(name, piece)
                except sessions.Unresolved as unresolved:
                    self._ask(name, piece, unresolved)
            await asyncio.sleep(0)

    def _ask(self, name: Hashable, piece: Callable[[], None], unresolved: sessions.Unresolved) -> None:
        """Do the piece again when there is the answer for it; try it later if there is none."""

        async def ask() -> None:
            try:
                await unresolved.ask()
            except statuses.APIStatus as error:
                logger.warning("A control loop was not answered at %r: %s", name, error.message)
                self.add_later(_RETRY, name, piece)
            else:
                self.add(name, piece)

        task = asyncio.create_task(ask(), name=f"question of the control loops at {name!r}")
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    def _do(self, name: Hashable, piece: Callable[[], None]) -> None:
        try:
            piece()
        except statuses.APIStatus as error:
            logger.warning("A control loop was refused at %r: %s", name, error.message)
        except Exception:  # the other pieces must be done anyway
            delay = min(_RETRY * 2 ** min(self._failures[name], 10), _MAX_RETRY)
            logger.exception("A control loop has failed at %r, and tries again in %g seconds", name, delay)
            self._failures[name] += 1
            self.add_later(delay, name, piece)
        else:
            self._failures.pop(name, None)


def supervised(observer: Callable[[str, Change], None]) -> Callable[[str, Change], None]:
    """Let the observer see the changes, and fail at some of them with no harm to those who write, or to the others."""

    def observe(bucket: str, change: Change) -> None:
        try:
            observer(bucket, change)
        except Exception:
            logger.exception("A control loop has failed to see a change of %s %r", bucket, change.record.key)

    return observe


class Objects:
    """The objects of a cluster for its control loops."""

    def __init__(self, store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> None:
        self.store = store
        self.registry = registry
        self.writer = writer
        self.queue = queue

    def find_kind(self, bucket: str) -> Kind | None:
        plural, _, group = bucket.partition(".")
        return self.registry.find_any_version(group, plural)

    def kind(self, bucket: str) -> Kind:
        kind = self.find_kind(bucket)
        if kind is None:
            raise LookupError(f"the registry has no {bucket}")
        return kind

    def get(self, bucket: str, key: Key) -> Obj | None:
        record = self.store.bucket(bucket).records.get(key)
        return None if record is None else objects.open_record(self.kind(bucket), record)

    def has(self, bucket: str, key: Key) -> bool:
        return key in self.store.bucket(bucket).records

    def records(self, bucket: str, namespace: str | None = None) -> Iterator[Record]:
        return self.store.bucket(bucket).select(namespace)

    def select(self, bucket: str, namespace: str | None = None) -> Iterator[Obj]:
        for record in list(self.records(bucket, namespace)):
            yield objects.open_record(self.kind(bucket), record)

    def owned(self, bucket: str, owner: Obj) -> list[Obj]:
        """Give the objects that are controlled by the owner, in the order of names."""
        uid, kind = owner["metadata"]["uid"], self.kind(bucket)
        found = [
            objects.open_record(kind, record)
            for record in self.records(bucket, namespace_of(owner))
            if uid in record.owners
        ]
        return [obj for obj in found if (controller_of(obj) or {}).get("uid") == uid]

    def create(self, bucket: str, namespace: str, body: Mapping[str, Any]) -> Obj | None:
        """Create the object; give nothing if there is one already, or the namespace accepts no more."""
        kind = self.kind(bucket)
        clean: Obj = codec.decode(codec.encode(body))  # never shared with templates
        try:
            return objects.open_record(kind, self.writer.create(kind, namespace, clean))
        except statuses.APIStatus as error:
            if error.code in (403, 404, 409):
                return None
            raise

    def update(self, bucket: str, key: Key, transform: Callable[[Obj], Obj], *, subresource: str = "") -> None:
        """Replace the object by what the function makes of it, if it is still there."""
        if self.has(bucket, key):
            self.writer.update(self.kind(bucket), key, transform, subresource=subresource)

    def set_status(self, bucket: str, key: Key, status: Obj) -> None:
        """Replace the status as a whole; fields that are none are left out."""
        clean = {field: value for field, value in status.items() if value is not None}
        self.update(bucket, key, lambda old: {**old, "status": clean}, subresource="status")

    def delete(self, bucket: str, key: Key, grace_period: int | None = None) -> None:
        """Delete the object if it is still there, and not asked to go already; or change how long it has for that."""
        record = self.store.bucket(bucket).records.get(key)
        if record is not None and (grace_period is not None or not record.deleting):
            self.writer.delete(self.kind(bucket), key, DeleteOptions(gracePeriodSeconds=grace_period))


def namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "")


def key_of(obj: Obj) -> Key:
    return objects.key_of(obj["metadata"])


def controller_of(obj: Obj) -> Obj | None:
    """Give the reference to the owner that manages the object, if there is one."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def without_finalizer(obj: Obj, finalizer: str) -> Obj:
    kept = [item for item in obj["metadata"].get("finalizers") or () if item != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}


def reference_to(owner: Obj) -> Obj:
    """Make the reference by which the owner manages an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_condition(conditions: list[Obj], kind: str, status: str, reason: str, message: str, now: str) -> Obj:
    """Make a condition; the time of the transition is kept as long as the status is the same."""
    old = next((item for item in conditions if item["type"] == kind), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
