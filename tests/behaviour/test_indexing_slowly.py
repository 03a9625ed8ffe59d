"""Indexing functions that take their time: they hold nothing but their own objects."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kopf
from kopf._controller import indexing_line
from tests.behaviour.objects import Objects
from tests.behaviour.peerings import PeeringObject
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE


class Gates(collections.defaultdict[str, threading.Event]):
    """What the functions wait for, by the names of the objects; for not so long that a blocked loop hangs forever."""

    def __init__(self) -> None:
        super().__init__(threading.Event)

    def wait(self, name: str) -> None:
        if name in self and not self[name].wait(PATIENCE / 4):
            raise AssertionError(f"Nobody has let {name} go.")


@pytest.fixture
def gates() -> Iterator[Gates]:
    gates = Gates()
    yield gates
    for gate in gates.values():
        gate.set()


@pytest.fixture
def declare(gates: Gates, calls: Calls) -> Callable[..., None]:
    """Declare the index ``idx``: values of ``spec.v`` by names; and the handler of raw events that looks into it."""

    def declare(**options: Any) -> None:
        @kopf.index("kopfexamples", **options)
        def idx(name: str, spec: kopf.Spec, **_: Any) -> dict[str, Any]:
            calls.append(("begun", name, spec["v"]))
            gates.wait(f"{name}{spec['v']}")
            return {name: spec["v"]}

        kopf.on.event("kopfexamples", id="event_fn")(
            calls.noting(lambda name, type, spec, idx, **_: ("event", name, type, spec["v"], list(idx.get(name, []))))
        )

    return declare


@pytest.fixture
def overtaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the others overtake slow objects soon."""
    monkeypatch.setattr(indexing_line, "_PATIENCE", 0.05)


def pick(calls: Calls, kind: str, name: str) -> list[Any]:
    """What was noted of that kind about the object."""
    return [call[2:] for call in calls if call[:2] == (kind, name)]


@pytest.mark.loops
@pytest.mark.parametrize("is_filtered", [False, True])
async def test_listings_do_not_hold_the_event_loop(operator: Operator, is_filtered: bool) -> None:
    """Not even with functions that wait for nothing, or with filters that reject everything."""
    indexed, most = 0, 0

    def count(name: str, **_: Any) -> bool:
        nonlocal indexed
        indexed += 1
        return not is_filtered

    @kopf.index("kopfexamples", when=count)
    async def idx(name: str, **_: Any) -> str:
        return name

    async def attend() -> None:
        nonlocal most
        while indexed < 1000:
            before = indexed
            await asyncio.sleep(0)
            most = max(most, indexed - before)

    for i in range(1000):
        operator.cluster.apply(
            {
                "apiVersion": "kopf.dev/v1",
                "kind": "KopfExample",
                "metadata": {"name": f"obj{i}", "namespace": "default"},
            }
        )
    starting = asyncio.create_task(operator.start())
    async with asyncio.timeout(PATIENCE):
        await attend()
    await starting
    assert most <= 400  # some of one turn, and some of the next one


@pytest.mark.loops
async def test_other_objects_go_on(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    gates: Gates,
    declare: Callable[..., None],
    overtaking: None,
) -> None:
    declare()
    kopf.on.event("kopfstatusexamples", id="other")(calls.noting("other"))
    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    gates["slow1"].clear()
    await kex.create("slow", spec={"v": 1})
    await calls.wait(lambda items: ("begun", "slow", 1) in items)
    await sub.create("obj", spec={})
    await calls.wait(lambda items: "other" in items)
    await kex.create("quick", spec={"v": 1})
    await calls.wait(lambda items: ("event", "quick", "ADDED", 1, [1]) in items)
    assert pick(calls, "event", "slow") == []
    gates["slow1"].set()
    await calls.wait(lambda items: ("event", "slow", "ADDED", 1, [1]) in items)


@pytest.mark.loops
async def test_listed_objects_wait_for_each_other_but_not_in_the_event_loop(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gates: Gates,
    declare: Callable[..., None],
) -> None:
    declare()
    kopf.on.create("kopfexamples")(calls.noting(lambda idx, name, **_: ("created", name, sorted(idx))))
    names = [f"obj{n}" for n in range(5)]
    await kex.create_all(names, spec={"v": 1})
    gates["obj11"].clear()
    await operator.launch()
    await calls.wait(lambda items: {("begun", name, 1) for name in names} <= {*items})
    await asyncio.sleep(0.1)
    assert [call for call in calls if call[0] != "begun"] == []
    gates["obj11"].set()
    await calls.wait(lambda items: sum(1 for call in items if call[0] == "created") == 5)
    assert all(call[2] == names for call in calls if call[0] == "created")


async def test_events_of_an_object_keep_their_order(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gates: Gates,
    declare: Callable[..., None],
    overtaking: None,
) -> None:
    """However long the function takes for each."""
    declare()
    await operator.start()
    gates["obj1"].clear()
    await kex.create("obj", spec={"v": 1})
    await calls.wait(lambda items: ("begun", "obj", 1) in items)
    for value in range(2, 6):
        await kex.merge({"spec": {"v": value}}, "obj")
    await kex.delete("obj")
    await kex.create("next", spec={"v": 1})
    await calls.wait(lambda items: pick(calls, "event", "next"))
    assert pick(calls, "event", "obj") == []
    gates["obj1"].set()
    await calls.wait(lambda items: len(pick(calls, "event", "obj")) == 6)
    assert pick(calls, "begun", "obj") == [(1,), (2,), (3,), (4,), (5,)]
    events = pick(calls, "event", "obj")
    assert [(type, value) for type, value, _ in events] == [
        ("ADDED", 1),
        *(("MODIFIED", value) for value in (2, 3, 4, 5)),
        ("DELETED", 5),
    ]
    assert events[-1] == ("DELETED", 5, [])


async def test_quick_functions_keep_the_order_of_the_stream(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    declare: Callable[..., None],
) -> None:
    """So, those who are called for an object see all that was indexed before: also if it is not indexed itself."""
    declare(labels={"indexed": "yes"})
    await operator.start()
    for n in range(20):
        await kex.create(f"obj{n}", labels={"indexed": "yes"} if n % 2 else {}, spec={"v": 1})
    await calls.wait(lambda items: pick(calls, "event", "obj19"))
    assert [name for kind, name, *_ in calls if kind == "event"] == [f"obj{n}" for n in range(20)]


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "changed"])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.loops
async def test_waiting_for_other_indices_and_objects(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    kind: str,
    is_listed: bool,
) -> None:
    """Children wait for their parents, which come later; and each of the resources waits for the other one."""

    def find(name: str, others: kopf.Index[Any, Any], parents: kopf.Index[Any, Any]) -> bool:
        return "z" in others if name == "a" else name == "z" or "a" in parents

    def sync_idx(name: str, others: kopf.Index[Any, Any], parents: kopf.Index[Any, Any], **_: Any) -> Any:
        deadline = time.monotonic() + PATIENCE / 4
        while not find(name, others, parents) and time.monotonic() < deadline:
            time.sleep(0.01)
        return {name: name}

    async def async_idx(name: str, others: kopf.Index[Any, Any], parents: kopf.Index[Any, Any], **_: Any) -> Any:
        deadline = time.monotonic() + PATIENCE / 4
        while not find(name, others, parents) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return {name: name}

    fn = sync_idx if kind == "sync" else async_idx
    kopf.index("kopfexamples", id="parents")(fn)
    kopf.index("kopfstatusexamples", id="others")(fn)
    kopf.on.event("kopfexamples", id="fn")(calls.noting(lambda name, parents, **_: (name, name in parents)))
    if not is_listed:
        await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    started = time.monotonic()
    await kex.create_all(("0", "a"))
    await sub.create_all(("y", "z"))
    if is_listed:
        await operator.launch()
    await calls.wait(lambda items: {("0", True), ("a", True)} <= {*items})
    assert time.monotonic() - started < PATIENCE / 4


async def test_functions_of_one_object_are_called_in_their_order(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.index("kopfexamples")
    def first(name: str, **_: Any) -> dict[str, str]:
        return {name: threading.current_thread().name}

    kopf.index("kopfexamples", id="second")(lambda name, first, **_: calls.append((name, list(first.get(name, [])))))

    await kex.create("listed")
    await operator.start_and_call(kex, calls, "added", times=2)
    assert [name for name, _ in calls] == ["listed", "added"]
    assert threading.main_thread().name not in [thread for _, threads in calls for thread in threads]
    assert all(threads for _, threads in calls)


async def test_many_slow_functions_run_at_once(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    overtaking: None,
) -> None:
    barrier = threading.Barrier(20)

    @kopf.index("kopfexamples")
    def idx(**_: Any) -> str:
        barrier.wait(PATIENCE / 4)
        return "passed"

    kopf.on.event("kopfexamples", id="fn")(calls.noting(lambda idx, **_: list(idx.get(None, []))))
    operator.set("execution.max_workers", 1)
    await kex.create_all(f"obj{n}" for n in range(20))
    await operator.start()
    await calls.wait_length(20)
    assert calls == [["passed"] * 20] * 20


async def test_busy_threads_of_handlers_do_not_hold_the_indexing(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.index("kopfexamples")
    def idx(name: str, **_: Any) -> dict[str, str]:
        return {name: name}

    @kopf.on.create("kopfexamples")
    def create_fn(name: str, idx: kopf.Index[Any, Any], **_: Any) -> None:
        deadline = time.monotonic() + PATIENCE / 4
        while name == "a" and "b" not in idx and time.monotonic() < deadline:
            time.sleep(0.01)
        calls.append((name, "b" in idx))

    operator.set("execution.max_workers", 1)
    await operator.start_and_create(kex, "a")
    await kex.create("b")
    await calls.wait_length(2)
    assert calls == [("a", True), ("b", True)]


@pytest.mark.parametrize(
    "error",
    [kopf.PermanentError("boo"), kopf.TemporaryError("boo", delay=0), Exception("boo")],
    ids=lambda error: type(error).__name__,
)
async def test_errors_of_slow_functions(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gates: Gates,
    logs: Logs,
    error: Exception,
) -> None:
    @kopf.index("kopfexamples")
    def idx(name: str, spec: kopf.Spec, retry: int, **_: Any) -> dict[str, Any]:
        calls.append(("begun", name, spec["v"], retry))
        gates.wait(f"{name}{spec['v']}")
        if spec["v"] == 2:
            raise error
        return {name: spec["v"]}

    kopf.on.event("kopfexamples", id="fn")(
        calls.noting(lambda name, spec, idx, **_: ("event", name, spec["v"], list(idx.get(name, []))))
    )
    await operator.start_and_create(kex, "obj", spec={"v": 1})
    await calls.wait(lambda items: ("event", "obj", 1, [1]) in items)
    gates["obj2"].clear()
    await kex.merge({"spec": {"v": 2}}, "obj")
    await calls.wait(lambda items: ("begun", "obj", 2, 0) in items)
    await kex.merge({"spec": {"v": 3}}, "obj")
    gates["obj2"].set()
    await calls.wait(lambda items: any(call[:3] == ("event", "obj", 3) for call in items))
    kept = [1] if type(error) is Exception else []
    assert ("event", "obj", 2, kept) in calls
    match error:
        case kopf.PermanentError():
            assert pick(calls, "begun", "obj") == [(1, 0), (2, 0)]
            assert ("event", "obj", 3, []) in calls
        case _:
            assert pick(calls, "begun", "obj") == [(1, 0), (2, 0), (3, int(type(error) is not Exception))]
            assert ("event", "obj", 3, [3]) in calls
    assert len(logs.find(".*'idx' failed .*boo")) == 1


@pytest.mark.loops
async def test_the_operator_exits_while_a_function_hangs(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    gates: Gates,
    logs: Logs,
    declare: Callable[..., None],
) -> None:
    """Its thread is left alone, and the next operator calls it anew."""
    declare()
    gates["obj1"].clear()
    await kex.create("obj", spec={"v": 1})
    await operator.launch()
    await calls.wait(lambda items: ("begun", "obj", 1) in items)
    await operator.stop()
    assert pick(calls, "event", "obj") == []
    await logs.wait(".*'idx' does not end, so it is abandoned.*")
    gates["obj1"].set()
    await operator.start()
    await calls.wait(lambda items: pick(calls, "event", "obj") == [(None, 1, [1])])


async def test_pauses_while_a_function_hangs(
    operator: Operator,
    kex: Objects,
    peering: PeeringObject,
    calls: Calls,
    gates: Gates,
    logs: Logs,
    declare: Callable[..., None],
) -> None:
    """What comes of it, is handled after the pause; each event once."""
    declare()
    operator.set("peering.mandatory", True)
    await operator.start()
    gates["obj1"].clear()
    await kex.create("obj", spec={"v": 1})
    await calls.wait(lambda items: ("begun", "obj", 1) in items)
    await peering.put("other", priority=1000, lifetime=1e9)
    await logs.wait("Pausing operations.*")
    gates["obj1"].set()
    await kex.merge({"spec": {"v": 2}}, "obj")
    await asyncio.sleep(0.1)
    assert pick(calls, "event", "obj") == []
    await peering.remove("other")
    await calls.wait(lambda items: len(pick(calls, "event", "obj")) == 2)
    assert pick(calls, "event", "obj") == [("ADDED", 1, [2]), ("MODIFIED", 2, [2])]


async def test_indices_that_are_declared_late_are_full_before_their_objects_are_handled(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    kopf.on.event("kopfexamples", id="early")(calls.noting(lambda name, **_: ("early", name)))
    names = await kex.create_all([f"obj{n}" for n in range(10)])
    await operator.start()
    await calls.wait_length(10)

    @kopf.index("kopfstatusexamples")
    def others(name: str, **_: Any) -> dict[str, str]:
        return {name: name}

    @kopf.index("kopfexamples")
    def idx(name: str, **_: Any) -> dict[str, str]:
        time.sleep(0.03)
        return {name: name}

    kopf.on.create("kopfexamples", id="late")(calls.noting(lambda idx, others, **_: ("late", sorted(idx), [*others])))
    await sub.create("obj")
    await calls.wait(lambda items: sum(1 for call in items if call[0] == "late") == 10)
    assert [call for call in calls if call[0] == "late"] == [("late", names, ["obj"])] * 10
