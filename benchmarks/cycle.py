"""
Measure a handling cycle with the transport replaced by prepared answers: what our own code takes, in µs of CPU.

    .venv/bin/python -m benchmarks.micro --cycle

A cycle begins with a decoded event, and ends when the response to the patch is accepted: with the detection, the call
of the handler, the composed and serialised patch, and the decoding of the response. It is hot: the same code runs for
dozens of objects in a row. The objects are of a usual size: 1-2 KB. The best of several rounds is taken.

Two figures have a bare counterpart, which is of Python and of this benchmark: a task for each object that does nothing
but send something (a part of the creation), and the handover of a function to a thread by the event loop alone.

The calibrating loop is a fixed piece of pure Python, timed in the same run. The ratio to it is what can be compared
between machines, and between runs on a busy machine.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

import kopf
from benchmarks.loading import make_widget
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.controller import Controller
from kopf._controller.indexing.indexers import Indexers
from kopf._controller.indexing.readiness import IndexReadiness
from kopf._controller.memos import Memo, Memos
from kopf._controller.observer import Observer, Observers
from kopf._controller.runtime import Runtime
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.lifecycles import LifeCycleFn, all_at_once, asap
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.time_source import Clock
from kopf._settings.settings import OperatorSettings
from kopf._values import codec
from kopf._values.bodies import RawEventType
from kopf._values.objects import KubeObject
from kopf._values.patches import merge
from kopf._values.resources import Resource
from kopf.cli.memory import collect_rarely

WIDGETS = Resource("bench.example.com", "v1", "widgets", kind="Widget", namespaced=True)
OBJECTS = 40
ROUNDS = 60
SEVERAL = 6

_TIMEOUT = 60.0
"""How long one round can take on a busy machine, in seconds; it is longer only if something is broken."""

CALIBRATION = "calibration"
BUDGETS: Mapping[str, float] = {
    "creation": 60.0,
    "update": 80.0,
    "echo": 5.0,
    "further handler": 40.0,
    "thread": 40.0,
    "listed": 30.0,
    "timer": 60.0,
    "raw event": 40.0,
}
"""What is asked of our own code: µs per object, per event, per handler."""

Declare = Callable[[OperatorRegistry], None]


_BARE_PAYLOAD = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"create": {"done": True}}}
_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class FixedClock(Clock):
    """A clock that is asked as always, but says the same: so that the patches are the same in every round."""

    def now(self) -> datetime.datetime:
        super().now()
        return _NOW


class CannedAPI(APIClient):
    """
    A transport of prepared answers.

    When first asked, it merges the patches as a server does, and remembers the answers. Afterwards, they are the same.
    """

    def __init__(self, settings: OperatorSettings, observer: Observer) -> None:
        super().__init__(Vault(settings), settings, observer)
        self._objects: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, list[bytes]] = {}
        self._given: dict[str, int] = {}
        self._awaited: int | None = None
        self.is_done = asyncio.Event()
        """Set when as many patches have come as in the first round."""
        self.count = 0
        self.last: dict[str, bytes] = {}

    def prepare(self, path: str, raw: bytes) -> None:
        """Let the object be there."""
        self._objects[path] = msgspec.json.decode(raw)
        self._answers[path] = []

    def rewind(self) -> None:
        """Begin with the first answers again."""
        self._awaited = self.count or None
        self._given = dict.fromkeys(self._answers, 0)
        self.count = 0
        self.last.clear()
        self.is_done.clear()

    async def request(self, method: str, path: str, payload: Any = None, *_: Any, **__: Any) -> bytes:
        body = codec.encode(payload)
        answers, given = self._answers[path], self._given[path]
        if given == len(answers):
            answers.append(self._patch(path, body))
        self._given[path] = given + 1
        self.count += 1
        if self.count == self._awaited:
            self.is_done.set()
        self.last[path] = answers[given]
        return answers[given]

    def _patch(self, path: str, body: bytes) -> bytes:
        obj, changes = self._objects[path], msgspec.json.decode(body)
        merge(obj, changes)
        metadata = obj["metadata"]
        metadata["generation"] += changes.keys() != {"metadata"}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1000)
        return msgspec.json.encode(obj)


class Bench:
    """An operator of one resource with everything but the transport, and the objects for it."""

    def __init__(self, declare: Declare, lifecycle: LifeCycleFn = asap, **kinds: bool) -> None:
        """The kinds of the objects are those of :func:`_make_raw`."""
        self._lifecycle = lifecycle
        self.observers = Observers()
        self._registry = OperatorRegistry()
        declare(self._registry)
        self._settings = OperatorSettings()
        self._api = CannedAPI(self._settings, self.observers)
        self._raws = [_make_raw(index, **kinds) for index in range(OBJECTS)]
        self._paths = [_get_path(index) for index in range(OBJECTS)]
        for path, raw in zip(self._paths, self._raws, strict=True):
            self._api.prepare(path, raw)

    def _make_controller(self) -> Controller:
        indexers = Indexers(self._registry.get_indexing())
        runtime = Runtime(
            settings=self._settings,
            api=self._api,
            clock=FixedClock(),
            lifecycle=self._lifecycle,
            executor=HandlerExecutor(self._settings.execution, self.observers),
            memos=Memos(Memo()),
            indices=indexers.indices,
            indexers=indexers,
            index_readiness=IndexReadiness(),
            comparable_versions=True,
            observer=self.observers,
        )
        return Controller(runtime, WIDGETS, self._registry.plan([WIDGETS])[WIDGETS])

    async def run_cycles(self) -> float:
        """Handle all objects from their events to the accepted responses; give the CPU seconds per object."""
        return (await self._run())[0]

    async def run_echoes(self) -> float:
        """The same, and then take in what our own patches have made of the objects; give the seconds per event."""
        return (await self._run())[1]

    async def run_events(self, type: RawEventType, wait: Callable[[], Awaitable[Any]]) -> float:
        """Take in one event of each object for which nothing is written; give the seconds per event."""
        controller = self._make_controller()
        spent = await self._take(controller, _make_events(type, self._raws), wait)
        await controller.stop()
        return spent / OBJECTS

    async def run_bare(self) -> float:
        """Handle all objects with none of our code: a task for each object, which only sends something."""
        self._api.rewind()
        gc.collect()
        started = time.process_time()
        tasks = [asyncio.create_task(self._api.patch(path, payload=_BARE_PAYLOAD)) for path in self._paths]
        async with asyncio.timeout(_TIMEOUT):
            await self._api.is_done.wait()
        await _settle()
        spent = time.process_time() - started
        await asyncio.gather(*tasks)
        return spent / OBJECTS

    async def _run(self) -> tuple[float, float]:
        controller = self._make_controller()
        self._api.rewind()
        cycles = await self._take(controller, _make_events("ADDED", self._raws), self._api.is_done.wait)
        if len(self._api.last) < OBJECTS:
            raise RuntimeError(f"Only {len(self._api.last)} of {OBJECTS} objects are patched.")
        events = _make_events("MODIFIED", [self._api.last[path] for path in self._paths])
        echoes = await self._take(controller, events, _settle)
        await controller.stop()
        return cycles / OBJECTS, echoes / OBJECTS

    async def rehearse(self) -> None:
        """Make the answers, and learn how many there are."""
        others = asyncio.all_tasks()

        async def wait() -> None:
            while tasks := asyncio.all_tasks() - others:
                await asyncio.wait(tasks)

        controller = self._make_controller()
        self._api.rewind()
        await self._take(controller, _make_events("ADDED", self._raws), wait)
        await controller.stop()

    async def _take(
        self, controller: Controller, events: list[WatchEvent], wait: Callable[[], Awaitable[Any]]
    ) -> float:
        gc.collect()
        started = time.process_time()
        for event in events:  # each in a batch of its own, as when they come one by one
            controller.accept([event])
        async with asyncio.timeout(_TIMEOUT):
            await wait()
        await _settle()
        return time.process_time() - started


async def _settle() -> None:
    """Let those finish who have only something to do after the response to their last patch."""
    for _ in range(5):
        await asyncio.sleep(0)


def _make_events(type: RawEventType, raws: Iterable[bytes]) -> list[WatchEvent]:
    return [WatchEvent(type, KubeObject.from_json(raw)) for raw in raws]


def _make_raw(index: int, *, handled: bool = False, changed: bool = False, blocked: bool = False) -> bytes:
    widget = make_widget(f"widget-{index:06}", "created", handled=handled, blocked=blocked)
    if changed:
        widget["spec"] |= {"phase": "updated"}
    widget["metadata"] |= {
        "namespace": "default",
        "uid": f"00000000-0000-0000-0000-{index:012}",
        "resourceVersion": str(1000 + index),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return msgspec.json.encode(widget)


def _get_path(index: int) -> str:
    return WIDGETS.get_url(namespace="default", name=f"widget-{index:06}")


class Calls:
    """The calls of a handler that is called once for each object in a round."""

    def __init__(self) -> None:
        self._count = 0
        self._is_done = asyncio.Event()

    async def note(self, name: str, **_: Any) -> None:
        """Be such a handler."""
        self._count += 1
        if self._count == OBJECTS:
            self._is_done.set()

    async def wait(self) -> None:
        """Wait until the round is over, and begin with the next one."""
        await self._is_done.wait()
        self._is_done.clear()
        self._count = 0


async def _handle(**_: Any) -> Any:
    return {"done": True}


def _handle_in_thread(**_: Any) -> Any:
    return {"done": True}


async def _handle_in_bare_thread(**_: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, _handle_in_thread)


def declare_creation(registry: OperatorRegistry) -> None:
    kopf.on.create(WIDGETS.plural, id="create", registry=registry)(_handle)


def _declare_update(registry: OperatorRegistry) -> None:
    kopf.on.update(WIDGETS.plural, id="update", registry=registry)(_handle)


def _declare_several(registry: OperatorRegistry) -> None:
    for number in range(SEVERAL):
        kopf.on.create(WIDGETS.plural, id=f"create-{number}", registry=registry)(_handle)


def _declare_sync(registry: OperatorRegistry) -> None:
    kopf.on.create(WIDGETS.plural, id="create", registry=registry)(_handle_in_thread)


def _declare_bare_sync(registry: OperatorRegistry) -> None:
    kopf.on.create(WIDGETS.plural, id="create", registry=registry)(_handle_in_bare_thread)


def _declare_timer(calls: Calls, registry: OperatorRegistry) -> None:
    kopf.timer(WIDGETS.plural, interval=3600, registry=registry)(calls.note)


def _declare_spy(calls: Calls, registry: OperatorRegistry) -> None:
    kopf.on.event(WIDGETS.plural, registry=registry)(calls.note)


async def calibrate() -> float:
    """Run the fixed piece of pure Python: about as many calls, attributes and small objects as in a cycle."""
    started = time.process_time()
    total = 0
    for index in range(2000):
        item: dict[str, Any] = {"index": index, "parts": (index, str(index))}
        total += _add(item["index"], len(item["parts"]))
    return (time.process_time() - started) / 2000 * 100


def _add(one: Any, two: int) -> int:
    return int(one) + two


async def measure_cycles(rounds: int = ROUNDS) -> dict[str, float]:
    """
    Measure it all; the figures are in µs.

    ``calibration`` is what 100 iterations of the calibrating loop take; the rounds of all figures are interleaved.
    Further handlers are called in the same cycle; by the default lifecycle, there is a further patch for each of them.
    A listed object was handled before the operator has started. A timer is started for such an object, and runs once.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    creation = Bench(declare_creation)
    update = Bench(_declare_update, handled=True, changed=True)
    several = Bench(_declare_several, all_at_once)
    chain = Bench(_declare_several)
    sync = Bench(_declare_sync)
    bare_sync = Bench(_declare_bare_sync)
    calls = Calls()
    listed = Bench(declare_creation, handled=True)
    timers = Bench(functools.partial(_declare_timer, calls), blocked=True)
    spy = Bench(functools.partial(_declare_spy, calls))
    actions: dict[str, Callable[[], Awaitable[float]]] = {
        CALIBRATION: calibrate,
        "bare task": creation.run_bare,
        "creation": creation.run_cycles,
        "echo": creation.run_echoes,
        "update": update.run_cycles,
        "several": several.run_cycles,
        "chain": chain.run_cycles,
        "sync": sync.run_cycles,
        "bare sync": bare_sync.run_cycles,
        "listed": lambda: listed.run_events(None, _settle),
        "timer": lambda: timers.run_events(None, calls.wait),
        "raw event": lambda: spy.run_events("MODIFIED", calls.wait),
    }
    for bench in (creation, update, several, chain, sync, bare_sync):
        await bench.rehearse()
    thresholds = gc.get_threshold()
    collect_rarely()  # as operators do
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(rounds):
        for title, action in actions.items():
            best[title] = min(best[title], await action())
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    micros = {title: seconds * 1e6 for title, seconds in best.items()}
    micros["further handler"] = (micros.pop("several") - micros["creation"]) / (SEVERAL - 1)
    micros["further patch"] = (micros.pop("chain") - micros["creation"]) / (SEVERAL - 1)
    micros["thread"] = micros.pop("sync") - micros["creation"]
    micros["bare thread"] = micros.pop("bare sync") - micros["creation"]
    return micros


def print_cycles(figures: Mapping[str, float]) -> None:
    """Print the figures beside their budgets."""
    unit = figures[CALIBRATION]
    print(f"{'own code, µs of CPU':<24} {'µs':>8} {'budget':>8} {'ratio to the loop':>18}")
    for title, micros in figures.items():
        budget = f"{BUDGETS[title]:8.0f}" if title in BUDGETS else " " * 8
        print(f"{title:<24} {micros:8.1f} {budget} {micros / unit:18.2f}")
