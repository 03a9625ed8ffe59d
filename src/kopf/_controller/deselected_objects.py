"""
Deselected objects: objects that have lost a label, so that the server does not select them anymore.

A watch stream with a selector reports the deletion of an object that stops matching. For the handlers, the object is
not deleted: it has changed so that it does not match. So every deletion is checked, and if the object still exists, a
change to its actual state replaces the deletion. The rest is as usual: daemons stop, values leave the indices.

Afterwards, the stream does not report these objects. So they are read from time to time, less and less often, until
they are gone (then nothing stays in memory), or are selected again. In the same way, the operator looks for objects
that are not selected but have our finalizer, e.g. from its earlier version: they would be blocked forever. It does
so when it starts, and later, because the earlier version can be still exiting.

Everything is read by lists, which need no permissions besides those for the stream. The selectors of the settings are
respected: an object that they exclude does not exist for the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from kopf._client.errors import (
    APIGoneError,
    APINetworkError,
    APINotFoundError,
    APIServerError,
    APITooManyRequestsError,
)
from kopf._client.resources.listing import list_pages
from kopf._client.resources.metadata_listing import list_metadata
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.pushed_selectors import PushedSelectors
from kopf._controller.runtime import Runtime
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.records import FrozenRecord, Record, replace
from kopf._values.resources import Resource
from kopf._values.slots import Slots, get_slot

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Key = str
"""The namespace and name of an object, with a slash between them; the namespace can be empty."""

_SOONEST, _LATEST = 10.0, 3600.0
"""The first and the maximal interval between reads of a deselected object, in seconds."""

_LATEST_IF_BLOCKED = 60.0
"""The maximal interval for objects with our finalizer: its removal was impossible yet, or others have put it back."""

_TOGETHER = 5.0
"""How much earlier than planned an object can be read together with others, in seconds."""

_MANY = 500
"""To read more objects than this, list the metadata first: most objects that vanish together do not exist."""

_AT_ONCE = 10
"""How many objects are read at once."""

_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""The delays between attempts while the API is not available, in seconds; the last one repeats."""

_TEMPORARY_ERRORS = (APINetworkError, APIServerError, APITooManyRequestsError, APIGoneError)


class _Deselected(Record):
    """An object that exists, but is not selected."""

    uid: str
    version: str
    """The last reported version; empty if there is none."""
    labels: dict[str, str]
    """The labels in the selector, by which the object does not match."""
    interval: float
    due: float

    def make_deletion(self, key: Key, resource: Resource) -> WatchEvent:
        """Make the event of its deletion, with the known part of the object."""
        namespace, _, name = key.partition("/")
        metadata = {"name": name, "uid": self.uid, "resourceVersion": self.version, "labels": self.labels}
        if namespace:
            metadata["namespace"] = namespace
        content = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return WatchEvent("DELETED", KubeObject.from_dict(content))


class _Search(FrozenRecord, frozen=True):
    """A planned search for blocked objects: the longer the operator works, the rarer they are."""

    due: float
    interval: float = _SOONEST
    is_first: bool = True

    def make_next(self, now: float) -> _Search:
        return _Search(now + self.interval, min(self.interval * 2, _LATEST), is_first=False)


class DeselectedObjects:
    """The objects of one target that the server does not select, but the operator must follow."""

    def __init__(self, runtime: Runtime, target: Target, pushed: PushedSelectors) -> None:
        self._target = target
        self._pushed = pushed
        self._finalizer = runtime.settings.persistence.finalizer
        self._reader = _Reader(runtime, target)
        self._deselected: dict[Key, _Deselected] = {}
        self._agenda: list[tuple[float, Key]] = []
        self._changed = asyncio.Event()
        self._search: _Search | None = None
        """When to search for the blocked objects; ``None`` until the first listing."""

    def take_over(self, slots: Slots) -> None:
        """Search for blocked objects as at the start, since this replica handles these slots now."""
        self._search = None
        for key in [key for key, item in self._deselected.items() if get_slot(item.uid or key) in slots]:
            del self._deselected[key]

    async def settle(self, events: list[WatchEvent]) -> list[WatchEvent]:
        """
        Replace the deletions of objects that still exist.

        Raises :class:`APIForbiddenError` if the objects cannot be read; then it must be called again.
        """
        deleted = [event.object.head for event in events if event.type == "DELETED"] if self._pushed.labels else []
        if self._search is None and any(event is LISTED for event in events):
            self._search = _Search(asyncio.get_running_loop().time())
            self._changed.set()
        if not deleted and not self._deselected:
            return events
        found = await self._reader.read({_get_key(meta) for meta in deleted})
        return [settled for event in events for settled in self._settle(event, found.get(_get_key(event.object.head)))]

    def _settle(self, event: WatchEvent, found: KubeObject | None) -> Iterable[WatchEvent]:
        if event is LISTED:
            return [event]
        key, uid = _get_key(event.object.head), event.object.head.uid
        deselected = self._deselected.get(key)
        if event.type != "DELETED":
            self._deselected.pop(key, None)
            if deselected is None:
                return [event]
            if deselected.uid != uid:
                return [deselected.make_deletion(key, self._target.resource), event]
            return [WatchEvent("MODIFIED", event.object)]
        if found is None or found.head.uid != uid:
            self._deselected.pop(key, None)
            return [event]
        self._remember(found.head)
        if self._pushed.select(found.head):
            return []  # it has come back already: the stream will tell
        return [WatchEvent("MODIFIED", found)]

    def _remember(self, meta: ObjectMeta, interval: float = _SOONEST) -> None:
        """Plan the next read of the object."""
        is_blocked = self._finalizer in (meta.finalizers or ())
        interval = min(interval, _LATEST_IF_BLOCKED if is_blocked else _LATEST)
        due = asyncio.get_running_loop().time() + interval
        labels = {key: value for key, value in (meta.labels or {}).items() if key in self._pushed.labels}
        key = _get_key(meta)
        self._deselected[key] = _Deselected(meta.uid, meta.resourceVersion, labels, interval, due)
        heapq.heappush(self._agenda, (due, key))
        self._changed.set()

    async def wait(self) -> None:
        """Wait until it is time to read any of the objects."""
        loop = asyncio.get_running_loop()
        while True:
            dues = [due for due, _ in self._agenda[:1]]
            dues += [] if self._search is None else [self._search.due]
            due = min(dues, default=None)
            if due is not None and due <= loop.time():
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()

    async def check(self) -> list[WatchEvent]:
        """
        Read the objects whose time has come; return the events of their changes.

        Raises :class:`APIForbiddenError` if this is not permitted.
        """
        now = asyncio.get_running_loop().time()
        events: list[WatchEvent] = []
        if self._search is not None and self._search.due <= now:
            events += await self._find_blocked(is_first=self._search.is_first)
            self._search = self._search.make_next(now)
        return [*events, *await self._look_again()]

    async def _find_blocked(self, *, is_first: bool) -> list[WatchEvent]:
        """Find the objects with our finalizer that the server does not select."""

        def pick(meta: ObjectMeta) -> Key | None:
            is_blocked = self._finalizer in (meta.finalizers or ())
            return _get_key(meta) if is_blocked and not self._pushed.select(meta) else None

        keys = [key for key in await self._reader.scan(pick, mentioning=self._finalizer) if key not in self._deselected]
        events: list[WatchEvent] = []
        for obj in (await self._reader.read(keys)).values():
            if not self._pushed.select(obj.head):
                self._remember(obj.head)
                events.append(WatchEvent(None if is_first else "MODIFIED", obj))
        return events

    async def _look_again(self) -> list[WatchEvent]:
        horizon = asyncio.get_running_loop().time() + _TOGETHER
        due: dict[Key, _Deselected] = {}
        for time, key in self._agenda:
            deselected = self._deselected.get(key)
            if time <= horizon and deselected is not None and deselected.due == time:
                due[key] = deselected
        found = await self._reader.read(due)
        self._agenda = [item for item in self._agenda if item[0] > horizon]
        heapq.heapify(self._agenda)
        events: list[WatchEvent] = []
        for key, deselected in due.items():
            obj = found.get(key)
            if obj is None or obj.head.uid != deselected.uid:
                del self._deselected[key]
                events.append(deselected.make_deletion(key, self._target.resource))
                continue
            self._remember(obj.head, deselected.interval * 2)
            if obj.head.resourceVersion != deselected.version and not self._pushed.select(obj.head):
                events.append(WatchEvent("MODIFIED", obj))
        return events

    def drain(self) -> list[WatchEvent]:
        """Report the deletion of all objects, since they are not served anymore."""
        events = [deselected.make_deletion(key, self._target.resource) for key, deselected in self._deselected.items()]
        self._deselected.clear()
        return events


def _get_key(meta: ObjectMeta) -> Key:
    """Return the key of the object."""
    return f"{meta.namespace or ''}/{meta.name}"


class _Reader:
    """
    Reads the objects of one target.

    All methods wait while the API is not available, and raise other errors, e.g. :class:`APIForbiddenError`.
    """

    def __init__(self, runtime: Runtime, target: Target) -> None:
        self._runtime = runtime
        self._target = target

    async def read(self, keys: Collection[Key]) -> Mapping[Key, KubeObject]:
        """Read the objects that exist."""
        if len(keys) > _MANY:
            existing = {*await self.scan(_get_key)}
            keys = [key for key in keys if key in existing]
        found: dict[Key, KubeObject] = {}
        remaining = iter(keys)

        async def read_one_by_one() -> None:
            for key in remaining:
                read = functools.partial(self._read_one, key)
                if (obj := await self._repeat(read, default=None)) is not None:
                    found[key] = obj

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(keys), _AT_ONCE)):
                    group.create_task(read_one_by_one())
        except ExceptionGroup as e:
            raise e.exceptions[0] from e  # one of them is enough
        return found

    async def _read_one(self, key: Key) -> KubeObject | None:
        namespace, _, name = key.partition("/")
        selectors = self._target.get_selectors(self._runtime.settings)
        fields = filter(None, [selectors.get("fieldSelector"), f"metadata.name={name}"])
        target = replace(
            self._target,
            scope=namespace or None,
            selectors={**selectors, "fieldSelector": ",".join(fields)},
        )
        async with contextlib.aclosing(list_pages(self._runtime.api, self._runtime.settings, target)) as pages:
            async for page in pages:
                for obj in page.objects:
                    if _get_key(obj.head) == key:  # selectors can be ignored
                        return obj
        return None

    async def scan(self, pick: Callable[[ObjectMeta], T | None], *, mentioning: str = "") -> list[T]:
        """Read the metadata of all objects (that mention the text); collect the picked values."""
        api, settings = self._runtime.api, self._runtime.settings

        async def scan() -> list[T]:
            result: list[T] = []
            async with contextlib.aclosing(list_metadata(api, settings, self._target, mentioning=mentioning)) as pages:
                async for page in pages:
                    result.extend(item for meta in page if (item := pick(meta)) is not None)
            return result

        return await self._repeat(scan, default=[])

    async def _repeat(self, read: Callable[[], Awaitable[R]], *, default: R) -> R:
        """Repeat until it succeeds; return the default if the whole kind is absent."""
        attempt = 0
        while True:
            try:
                return await read()
            except APINotFoundError:
                return default
            except _TEMPORARY_ERRORS as e:
                delay = _DELAYS[min(attempt, len(_DELAYS) - 1)]
                attempt += 1
                logger.warning("Reading of %r will be repeated in %g seconds: %s", self._target.resource, delay, e)
                await asyncio.sleep(delay)
