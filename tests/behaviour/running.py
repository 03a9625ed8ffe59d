"""The operator under test: started and stopped in the event loop of the test, with everything it says recorded."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Obj, Objects, get_patience
from tests.fastforward import fast_forwarding

T = TypeVar("T")
Fn = TypeVar("Fn", bound=Callable[..., Any])


class Decorator(Protocol):
    """Any of the decorators: to choose them by parameters of tests."""

    __name__: str

    def __call__(self, *args: Any, **options: Any) -> Callable[[Fn], Fn]: ...


async def do_nothing(**_: Any) -> None:
    """A handler that is only there."""


class Journal(Generic[T]):
    """What has happened, in the order it happened; it can be waited for. Can be written from any thread."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[T]:
        return iter([*self.items])

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        return self.items == other

    def __getitem__(self, index: int) -> T:
        return self.items[index]

    def __repr__(self) -> str:
        return repr(self.items)

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def append(self, item: T) -> None:
        self.items.append(item)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def wait(self, condition: Callable[[list[T]], object]) -> None:
        """Wait until the condition is true for all that has happened so far."""
        try:
            async with asyncio.timeout(get_patience()):
                while not condition(self.items):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"It never came so; this has happened: {self.items!r}") from None

    async def wait_length(self, length: int) -> None:
        """Wait until at least that many things have happened."""
        await self.wait(lambda items: len(items) >= length)

    def noting(
        self,
        what: Any,
        *,
        result: Any = None,
        error: Exception | None = None,
        times: int | None = None,
    ) -> Callable[..., Awaitable[Any]]:
        """
        Make a handler that notes this whenever it is called; or what this function makes of the arguments.

        Afterwards, it fails if there is an error: always, or in so many attempts.
        """

        async def fn(**kwargs: Any) -> Any:
            self.append(_make_note(what, kwargs))
            if error is not None and (times is None or kwargs["retry"] < times):
                raise error
            return result

        return fn

    def accompanying(
        self,
        beginning: Any,
        end: Any = None,
        *,
        lasting: float = 0,
        result: Any = None,
    ) -> Callable[..., Awaitable[Any]]:
        """
        Make a daemon that notes its beginning, waits until it is asked to exit, and notes its end if it has to.

        It needs so many seconds to exit.
        """

        async def fn(stopped: kopf.AsyncDaemonStopperChecker, **kwargs: Any) -> Any:
            self.append(_make_note(beginning, {"stopped": stopped, **kwargs}))
            await stopped.wait()
            if lasting:
                await asyncio.sleep(lasting)
            if end is not None:
                self.append(_make_note(end, {"stopped": stopped, **kwargs}))
            return result

        return fn

    def hanging(self, beginning: Any, end: Any = "cancelled") -> Callable[..., Awaitable[None]]:
        """Make a handler that notes its beginning, hangs until it is cancelled, and notes that."""

        async def fn(**kwargs: Any) -> None:
            self.append(_make_note(beginning, kwargs))
            try:
                await asyncio.Event().wait()
            finally:
                self.append(_make_note(end, kwargs))

        return fn


def _make_note(what: Any, kwargs: dict[str, Any]) -> Any:
    return what(**kwargs) if callable(what) else what


Calls: TypeAlias = Journal[Any]
"""What the handlers of a test note down when they are called."""


class Logs(logging.Handler):
    """Everything that the framework logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: Journal[logging.LogRecord] = Journal()
        self.expected: list[str] = []
        """Patterns of the errors that the test provokes."""

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def get_messages(self, name: str | None = None, *, level: int = logging.DEBUG) -> list[str]:
        """The messages about the object, or all messages; of that level and up."""
        return [
            record.getMessage()
            for record in self.records
            if record.levelno >= level and (name is None or _get_name(record) == name)
        ]

    def find(self, pattern: str, name: str | None = None) -> list[logging.LogRecord]:
        """The records whose messages match the pattern from the beginning to the end; of the object, or of all."""
        return [
            record
            for record in self.records
            if re.fullmatch(pattern, record.getMessage(), re.DOTALL) and (name is None or _get_name(record) == name)
        ]

    async def wait(self, pattern: str, times: int = 1, name: str | None = None) -> logging.LogRecord:
        """Wait for a message that matches the pattern from the beginning to the end; about the object, or about any."""
        await self.records.wait(lambda _: len(self.find(pattern, name)) >= times)
        return self.find(pattern, name)[times - 1]

    def check(self) -> None:
        """Check that the framework itself has not failed, except for what the test expects."""
        for record in self.records:
            message = record.getMessage()
            is_failure = "could not be handled" in message or "has failed, and will be" in message
            is_own = not record.name.startswith(("kopf.objects", "kopf.activities"))
            if is_failure or (is_own and record.levelno >= logging.ERROR):
                assert any(re.search(pattern, message) for pattern in self.expected), message


def _get_name(record: logging.LogRecord) -> str | None:
    ref: dict[str, str] = getattr(record, "k8s_ref", None) or {}
    return ref.get("name")


def get_pauses(times: Iterable[float]) -> list[float]:
    """How much time is between those moments."""
    return [after - before for before, after in itertools.pairwise(times)]


def now() -> float:
    """The time of the event loop, in seconds: in fast-forwarded tests, it runs much faster than the real one."""
    return asyncio.get_running_loop().time()


async def get_duration(action: Awaitable[object]) -> float:
    """Wait for it, and tell how long it has taken, in seconds of the loop's time."""
    started = now()
    await action
    return now() - started


class Operator:
    """Runs operators one after another: for each start, a new one, as if a process was restarted."""

    def __init__(self, cluster: LocalCluster, registry: kopf.OperatorRegistry | None) -> None:
        self.cluster = cluster
        self.registry = registry
        self.configure: Callable[[kopf.OperatorSettings], None] = lambda settings: None
        """What to change in the settings of every operator, if it is more than simple values: see `set`."""
        self._settings: dict[str, Any] = {}
        self._stop_flag = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def set(self, name: str, value: Any) -> None:
        """Change a setting of every operator that is started from now on, e.g. ``queueing.exit_timeout``."""
        self._settings[name] = value

    async def start(self, *, watching: tuple[str, ...] = ("kopfexamples",), **kwargs: Any) -> None:
        """Start, and wait until it watches the resources."""
        assert self._task is None, "the previous operator still runs"
        counters = self.cluster.counters
        goals = {("watch", name, 200): counters.get(("watch", name, 200), 0) + 1 for name in watching}
        await self.launch(**kwargs)
        while any(self.cluster.counters.get(key, 0) < goal for key, goal in goals.items()):
            if not self.is_running:
                await self.wait()
                raise AssertionError("the operator has exited with no errors")
            await asyncio.sleep(0.001)

    async def start_and_create(self, objects: Objects, name: str = "obj", **fields: Any) -> Obj:
        """Start, and create an object; get it as it is created."""
        await self.start(watching=(objects.plural,))
        return await objects.create(name, **fields)

    async def start_and_call(
        self,
        objects: Objects,
        calls: Calls,
        name: str = "obj",
        *,
        times: int = 1,
        **fields: Any,
    ) -> Obj:
        """Start, create an object, and wait until at least so many calls are noted; get it as it is created."""
        obj = await self.start_and_create(objects, name, **fields)
        await calls.wait_length(times)
        return obj

    async def start_and_handle(self, objects: Objects, name: str = "obj", **fields: Any) -> Obj:
        """Start, create an object, and wait until it is handled; get it as it is then."""
        await self.start(watching=(objects.plural,))
        return await objects.create_and_wait(name, **fields)

    async def find_and_handle(self, objects: Objects, name: str = "obj", **fields: Any) -> Obj:
        """Create an object, start, and wait until it is handled; get it as it is then."""
        await objects.create(name, **fields)
        await self.start(watching=(objects.plural,))
        return await objects.wait_handled(name)

    async def launch(self, **kwargs: Any) -> None:
        """Start, and wait until it is ready, or until it fails to."""
        self._stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(ready_flag, **kwargs))
        ready = asyncio.create_task(ready_flag.wait())
        try:
            await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)

    async def launch_in_vain(self, error: type[Exception], match: str, **kwargs: Any) -> None:
        """Start, and wait until it fails with such an error, in whose text the pattern is found."""
        await self.launch(**kwargs)
        with pytest.raises(error, match=match):
            await self.wait()

    async def _run(self, ready_flag: asyncio.Event, **kwargs: Any) -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        for name, value in self._settings.items():
            group, _, field = name.partition(".")
            assert hasattr(getattr(settings, group), field), name
            setattr(getattr(settings, group), field, value)
        self.configure(settings)
        await kopf.operator(
            **{
                "registry": self.registry,
                "settings": settings,
                "clusterwide": True,
                "stop_flag": self._stop_flag,
                "ready_flag": ready_flag,
                **kwargs,
            }
        )

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def wait(self) -> None:
        """Wait until it exits by itself; its error is raised."""
        assert self._task is not None
        try:
            async with asyncio.timeout(get_patience()):
                await self._task
        finally:
            self._task = None

    async def stop(self) -> None:
        """Stop, and wait until it has exited; its error is raised."""
        self._stop_flag.set()
        with fast_forwarding():
            await self.wait()

    async def cancel(self) -> None:
        """Stop by cancelling the task."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def restart(self, **kwargs: Any) -> None:
        await self.stop()
        await self.start(**kwargs)
