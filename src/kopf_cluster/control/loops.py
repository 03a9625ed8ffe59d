"""
The common base of all control loops: their work queue, and their access to the objects.

Loops address objects by the bucket and the key; an object that has gone is seen as absent. No object can end the
control loops: a failed call is logged and retried later, while all other work goes on.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVarTuple

from kopf_cluster import ages, codec, sessions, statuses
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Change, Key, Record
from kopf_cluster.writes.write_options import DeleteOptions
from kopf_cluster.writes.writing import Writer

logger = logging.getLogger("kopf.cluster")

Ts = TypeVarTuple("Ts")

Work: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""A function and its arguments."""

# How many calls are made in a row before other tasks of the event loop get their turn.
_TURN: Final = 20

# The delay of the first retry of a failed call, in seconds; it doubles with each further failure.
_RETRY: Final = 1.0
_MAX_RETRY: Final = 1000.0  # as in kube-controller-manager


class WorkQueue:
    """Calls to make, in the order of their arrival; a call that already waits is not queued twice."""

    def __init__(self) -> None:
        self._waiting: collections.OrderedDict[Work, None] = collections.OrderedDict()
        self._timers: dict[Work, asyncio.TimerHandle] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._failures: collections.Counter[Work] = collections.Counter()
        self._wakeup = asyncio.Event()

    def add(self, function: Callable[[*Ts], None], *args: *Ts) -> None:
        """Queue a call; the arguments must be hashable."""
        self._waiting[function, args] = None
        self._wakeup.set()

    def add_later(self, delay: float, function: Callable[[*Ts], None], *args: *Ts) -> None:
        """Queue a call after the delay, in seconds of the loop's clock; a planned call keeps its time."""
        if (function, args) not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[function, args] = loop.call_later(delay, self._add_planned, (function, args))

    def _add_planned(self, work: Work) -> None:
        del self._timers[work]
        self.add(work[0], *work[1])

    async def close(self) -> None:
        """Cancel the planned calls and the open questions to webhooks."""
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
                if not self._waiting:
                    self._wakeup.clear()
                    break
                work, _ = self._waiting.popitem(last=False)
                try:
                    self._do(work)
                except sessions.Unresolved as unresolved:
                    self._ask(work, unresolved)
            await asyncio.sleep(0)

    def _ask(self, work: Work, unresolved: sessions.Unresolved) -> None:
        """Repeat the call when the webhook has answered; retry later if it does not answer."""

        async def ask() -> None:
            try:
                await unresolved.ask()
            except statuses.APIStatus as error:
                logger.warning("A control loop got no answer for %s: %s", _show(work), error.message)
                self.add_later(_RETRY, work[0], *work[1])
            else:
                self.add(work[0], *work[1])

        task = asyncio.create_task(ask(), name=f"question of the control loops for {_show(work)}")
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    def _do(self, work: Work) -> None:
        function, args = work
        try:
            function(*args)
        except statuses.APIStatus as error:
            logger.warning("The server refused a control loop in %s: %s", _show(work), error.message)
        except Exception:  # all other calls must be made anyway
            delay = min(_RETRY * 2 ** min(self._failures[work], 10), _MAX_RETRY)
            logger.exception("A control loop has failed in %s, and tries again in %g seconds", _show(work), delay)
            self._failures[work] += 1
            self.add_later(delay, function, *args)
        else:
            self._failures.pop(work, None)


def _show(work: Work) -> str:
    return f"{work[0].__qualname__}({', '.join(map(repr, work[1]))})"


def supervised(observer: Callable[[str, Change], None]) -> Callable[[str, Change], None]:
    """Wrap the observer: its failures are logged, and neither the writers nor other observers notice them."""

    def observe(bucket: str, change: Change) -> None:
        try:
            observer(bucket, change)
        except Exception:
            logger.exception("A control loop has failed to observe a change of %s %r", bucket, change.record.key)

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

    def create(self, bucket: str, namespace: str, body: Mapping[str, Any]) -> Obj | None:
        """Create the object; return none if it exists already, or if the namespace accepts no new objects."""
        kind = self.kind(bucket)
        clean: Obj = codec.decode(codec.encode(body))  # never shared with templates
        try:
            return objects.open_record(kind, self.writer.create(kind, namespace, clean))
        except statuses.APIStatus as error:
            if error.code in (403, 404, 409):
                return None
            raise

    def update(self, bucket: str, key: Key, transform: Callable[[Obj], Obj], *, subresource: str = "") -> None:
        """Replace the object with the result of the function, if the object still exists."""
        if self.has(bucket, key):
            self.writer.update(self.kind(bucket), key, transform, subresource=subresource)

    def set_status(self, bucket: str, key: Key, status: Obj) -> None:
        """Replace the whole status; fields with none are omitted."""
        clean = {field: value for field, value in status.items() if value is not None}
        self.update(bucket, key, lambda old: {**old, "status": clean}, subresource="status")

    def delete(self, bucket: str, key: Key, grace_period: int | None = None) -> None:
        """Delete the object unless it is being deleted already; with a grace period, change its remaining seconds."""
        record = self.store.bucket(bucket).records.get(key)
        if record is not None and (grace_period is not None or not record.deleting):
            self.writer.delete(self.kind(bucket), key, DeleteOptions(gracePeriodSeconds=grace_period))


class ControlLoop(abc.ABC):
    """A control loop, which follows the changes of the objects."""

    def __init__(self, access: Objects) -> None:
        self.objects = access

    @abc.abstractmethod
    def observe(self, bucket: str, change: Change) -> None:
        """Take notice of a change, and queue the work that follows from it."""


def namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "")


def key_of(obj: Obj) -> Key:
    return objects.key_of(obj["metadata"])


def controller_of(obj: Obj) -> Obj | None:
    """Return the reference to the controller of the object, if there is one."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def without_finalizer(obj: Obj, finalizer: str) -> Obj:
    kept = [item for item in obj["metadata"].get("finalizers") or () if item != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}


def reference_to(owner: Obj) -> Obj:
    """Make an owner reference to the controller of an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_condition(conditions: Iterable[Obj], kind: str, status: str, reason: str, message: str) -> Obj:
    """Make a condition; it keeps the time of the transition as long as the status is the same."""
    old = next((item for item in conditions if item["type"] == kind), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else ages.now()
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
