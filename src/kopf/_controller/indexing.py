"""
Indexing: in-memory overviews of objects, kept up to date by the indexing functions.

The functions are called right where the events come in, before anything else is done with the objects, and
hold no workers. Nothing else is handled until the first listings of all indexed resources are indexed.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
from collections.abc import Callable, Collection, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._handlers.causes import ResourceCause
from kopf._handlers.errors import ErrorsMode
from kopf._handlers.filters import matches
from kopf._handlers.handlers import IndexingHandler
from kopf._handlers.invocation import call_in_place, wait
from kopf._handlers.outcomes import Attempt, Outcome, execute_once
from kopf._logging.logs import LocalObjectLogger
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._controller.runtime import Runtime

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ObjectKey = tuple[Resource, str]
"""Which object a value belongs to: its resource & uid."""


class Store(Collection[V], Generic[V]):
    """All values under one key of an index. It is safe to be read from threads, and is never empty."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[ObjectKey, V] = {}

    def __repr__(self) -> str:
        return repr(list(self))

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._items.values()))  # a snapshot: it can be changed while it is iterated

    def __contains__(self, item: object) -> bool:
        return any(value == item for value in self)


class Index(Mapping[K, Store[V]], Generic[K, V]):
    """A read-only mapping of keys to the collections of values. It is safe to be read from threads."""

    __slots__ = ("_keys_of", "_stores")

    def __init__(self) -> None:
        self._stores: dict[K, Store[V]] = {}
        self._keys_of: dict[ObjectKey, tuple[K, ...]] = {}

    def __repr__(self) -> str:
        return repr(dict(self._stores))

    def __bool__(self) -> bool:
        return bool(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def __getitem__(self, key: K) -> Store[V]:
        return self._stores[key]

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    # Snapshots, too: the inherited ones look the keys up one by one, while they can disappear.
    def items(self) -> ItemsView[K, Store[V]]:
        return dict(self._stores).items()

    def values(self) -> ValuesView[Store[V]]:
        return dict(self._stores).values()

    def _replace(self, owner: ObjectKey, values: Mapping[K, V]) -> None:
        """Put the values of the object instead of those it had."""
        for key in self._keys_of.get(owner, ()):
            if key not in values:
                self._drop(owner, key)
        for key, value in values.items():
            store = self._stores.get(key)
            if store is None:
                store = self._stores[key] = Store()
            store._items[owner] = value
        if values:
            self._keys_of[owner] = tuple(values)
        else:
            self._keys_of.pop(owner, None)

    def _drop(self, owner: ObjectKey, key: K) -> None:
        store = self._stores[key]
        store._items.pop(owner, None)
        if not store._items:
            del self._stores[key]


@dataclasses.dataclass
class _Failure:
    """Why an object is not in the index, and until when."""

    retries: int
    started: datetime.datetime
    until: datetime.datetime | None
    """``None`` is for forever."""


class Indexer:
    """One index, and whose errors have excluded which objects from it."""

    def __init__(self) -> None:
        self.index: Index[Any, Any] = Index()
        self._failures: dict[ObjectKey, _Failure] = {}

    def is_excluded(self, owner: ObjectKey, now: datetime.datetime) -> bool:
        """Tell if the function has failed on the object, so that it is not called for it (now or ever)."""
        failure = self._failures.get(owner)
        return failure is not None and (failure.until is None or failure.until > now)

    def get_attempt(self, owner: ObjectKey, now: datetime.datetime) -> Attempt:
        """Describe the attempt that is about to be made, since the first failure if there was any."""
        failure = self._failures.get(owner)
        started = now if failure is None else failure.started
        return Attempt(retry=0 if failure is None else failure.retries, started=started, runtime=now - started)

    def accept(self, owner: ObjectKey, outcome: Outcome, attempt: Attempt, now: datetime.datetime) -> None:
        """Take the outcome of an attempt: the result goes to the index; errors exclude the object for a while."""
        if outcome.exception is not None:
            until = None if outcome.final else now + datetime.timedelta(seconds=outcome.delay or 0)
            self._failures[owner] = _Failure(attempt.retry + 1, attempt.started, until)
            self.index._replace(owner, {})
            return
        self._failures.pop(owner, None)
        if outcome.result is not None:
            # Strictly dicts: their descendants and other mappings are regular values.
            values = outcome.result if type(outcome.result) is dict else {None: outcome.result}
            self.index._replace(owner, values)

    def discard(self, owner: ObjectKey) -> None:
        """Remove what the object has in the index: it does not match anymore."""
        self.index._replace(owner, {})

    def forget(self, owner: ObjectKey) -> None:
        """Remove all traces of an object that exists no more."""
        self.index._replace(owner, {})
        self._failures.pop(owner, None)


class IndexReadiness:
    """Holds the handling back until all that must be known before it is known."""

    def __init__(self) -> None:
        self._awaited: set[Hashable] = set()
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether the handling can go on."""
        return not self._awaited

    def close_for(self, keys: Iterable[Hashable]) -> None:
        """Close the gate until all these are done."""
        self._awaited.update(keys)

    def done(self, key: Hashable) -> None:
        """One of the awaited is done: for good or bad, it is not to be waited for anymore."""
        if key in self._awaited:
            self._awaited.discard(key)
            if not self._awaited:
                listeners, self._listeners = self._listeners, []
                for listener in listeners:
                    listener()

    def call_when_open(self, listener: Callable[[], None]) -> None:
        """Call it once when the gate opens."""
        self._listeners.append(listener)


class Indexers:
    """
    All indices of an operator, by the ids of their handlers.

    Several handlers can have one id: the same function with several selectors or filters, or different functions for
    different objects. For one object, it is the first one that matches: the index has its values of the object.
    """

    def __init__(self, handlers: Iterable[IndexingHandler]) -> None:
        self._indexers: dict[HandlerId, Indexer] = {handler.id: Indexer() for handler in handlers}

    @property
    def indices(self) -> Mapping[str, Index[Any, Any]]:
        """The indices by their names, as they go to the kwargs of all handlers."""
        return {key: indexer.index for key, indexer in self._indexers.items()}

    async def process(
        self, runtime: Runtime, resource: Resource, handlers: Collection[IndexingHandler], events: Iterable[WatchEvent]
    ) -> None:
        """Bring the indices in line with the events of one resource."""
        groups: dict[HandlerId, list[IndexingHandler]] = {}
        for handler in handlers:
            groups.setdefault(handler.id, []).append(handler)
        for event in events:
            if event is LISTED:
                continue
            owner = (resource, event.object.head.uid)
            if event.type == "DELETED":
                for id in groups:
                    self._indexers[id].forget(owner)
            elif event.object.pruned:  # it cannot be decoded, so it is unknown what it has
                for id in groups:
                    self._indexers[id].discard(owner)
            else:
                await self._index(runtime, resource, groups, owner, event.object)

    async def _index(
        self,
        runtime: Runtime,
        resource: Resource,
        groups: Mapping[HandlerId, Collection[IndexingHandler]],
        owner: ObjectKey,
        obj: KubeObject,
    ) -> None:
        body = Body(obj.for_users())
        cause = ResourceCause(
            logger=LocalObjectLogger(body=body, settings=runtime.settings),
            memo=runtime.memos.borrow(obj.head.uid),
            indices=runtime.indices,
            resource=resource,
            body=body,
            patch=Patch(body=body),
        )
        now = runtime.clock.now()
        for id, group in groups.items():
            indexer = self._indexers[id]
            if indexer.is_excluded(owner, now):
                continue
            try:
                handler = next((item for item in group if _matches(item, cause)), None)
            except Exception as e:  # of the callbacks; the values are kept, as with the errors of the functions
                cause.logger.error("Indexer %r cannot be filtered, and is skipped: %s", id, e, exc_info=e)
                continue
            if handler is None:
                indexer.discard(owner)
                continue
            attempt = indexer.get_attempt(owner, now)
            outcome = await _call(handler, cause, attempt, runtime.settings.execution.default_backoff)
            indexer.accept(owner, outcome, attempt, now)
        runtime.memos.give_back(obj.head.uid)


def _matches(handler: IndexingHandler, cause: ResourceCause) -> bool:
    return matches(handler, cause)


async def _call(handler: IndexingHandler, cause: ResourceCause, attempt: Attempt, default_backoff: float) -> Outcome:
    """Call the function in place, even if it is synchronous: a thread would cost more than the function itself."""
    kwargs = {
        "retry": attempt.retry,
        "started": attempt.started,
        "runtime": attempt.runtime,
        **cause.kwargs_for(handler),
    }
    if not handler.is_async and attempt.retry == 0:
        try:
            result = call_in_place(handler.fn, kwargs)
        except Exception as e:
            error = e  # to be treated as all errors are, in all details

            async def call() -> Any:
                raise error
        else:
            if not inspect.isawaitable(result):
                return Outcome(final=True, result=result)

            async def call() -> Any:
                return await wait(result)
    else:

        async def call() -> Any:
            result = call_in_place(handler.fn, kwargs)
            return await wait(result) if inspect.isawaitable(result) else result

    return await execute_once(
        handler,
        attempt,
        call,
        logger=cause.logger,
        default_backoff=default_backoff,
        default_errors=ErrorsMode.IGNORED,
        verbose=False,
    )
