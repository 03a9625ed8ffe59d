"""Pausing: what becomes of the handlers, daemons, timers, and indices when the operator is paused and goes on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, Objects
from tests.behaviour.peerings import PeeringObject, create_peering
from tests.behaviour.running import Calls, Logs, Operator, get_pauses, now

pytestmark = pytest.mark.fastforward

R = kopf.DaemonStoppingReason


class Switch:
    """Pauses and resumes the operator under test."""

    def __init__(self, peering: PeeringObject, logs: Logs) -> None:
        self._peering = peering
        self._logs = logs
        self._times = 0

    async def pause(self) -> None:
        self._times += 1
        await self._peering.put("other", lifetime=1e9)
        await self._logs.wait("Pausing operations in favour of .*", times=self._times)

    async def resume(self) -> None:
        await self._peering.remove("other")
        await self._logs.wait("Resuming operations after the pause.*", times=self._times)


@pytest.fixture
async def switch(cluster: LocalCluster, api: API, logs: Logs) -> Switch:
    peering = await create_peering(api)
    return Switch(peering, logs)


# ------------------------------------------------------------------ daemons & timers


async def test_daemons_are_stopped_and_started_anew(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.daemon("kopfexamples", id="fn")(
        calls.accompanying(lambda name, **_: (name, "started"), lambda name, stopped, **_: (name, stopped.reason))
    )
    await operator.start_and_create(kex, "same")
    await kex.create("changed")
    await kex.create("gone")
    await calls.wait_length(3)
    await switch.pause()
    await calls.wait_length(6)
    assert {name for name, reason in calls.items[3:] if R.OPERATOR_PAUSING in reason} == {"same", "changed", "gone"}
    await kex.merge({"spec": {"field": "changed"}}, "changed")
    await kex.create("new")
    await kex.delete("gone")
    await kex.release("gone")
    await kex.wait_gone("gone")
    await asyncio.sleep(100)  # nothing is expected to happen
    assert len(calls) == 6
    await switch.resume()
    await calls.wait_length(9)
    assert sorted(calls.items[6:]) == [("changed", "started"), ("new", "started"), ("same", "started")]
    await switch.pause()
    await switch.resume()
    await calls.wait_length(15)
    assert len(calls) == 15
    await switch.pause()
    await operator.stop()
    assert len(calls) == 18


async def test_sync_daemons(operator: Operator, switch: Switch, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples", id="fn")
    def fn(stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        stopped.wait()
        calls.append(stopped.reason)

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await switch.pause()
    await calls.wait_length(2)
    assert R.OPERATOR_PAUSING in calls[1]
    await switch.resume()
    await calls.wait_length(3)


async def test_daemons_that_exit_slowly_are_started_anew_only_when_they_have_exited(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
) -> None:
    release = asyncio.Event()

    @kopf.daemon("kopfexamples", id="fn")
    async def fn(**_: Any) -> None:
        calls.append("started")
        await release.wait()
        calls.append("ended")

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await switch.pause()
    await switch.resume()
    await kex.merge({"spec": {"field": "changed"}})
    assert calls == ["started"]
    release.set()
    await calls.wait_length(3)
    assert calls.items[:3] == ["started", "ended", "started"]


async def test_daemons_that_have_exited_before_are_not_started_anew(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    kopf.daemon("kopfexamples", id="done")(calls.noting("done"))
    kopf.daemon("kopfexamples", id="failed")(calls.noting("failed", error=kopf.PermanentError("never")))
    await operator.start_and_create(kex)
    await logs.wait(".*Daemon 'done' succeeded.*")
    await logs.wait(".*Daemon 'failed' failed permanently.*")
    await switch.pause()
    await switch.resume()
    await kex.create("later")
    await calls.wait_length(4)
    assert sorted(calls) == ["done", "done", "failed", "failed"]


async def test_objects_deleted_during_the_pause_release_their_daemons(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.daemon("kopfexamples", id="fn")(calls.accompanying("started"))
    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await switch.pause()
    await kex.delete()
    await switch.resume()
    await kex.wait_gone()
    assert calls == ["started"]


async def test_timers_do_not_tick_while_paused(operator: Operator, switch: Switch, kex: Objects, calls: Calls) -> None:

    kopf.timer("kopfexamples", interval=10, id="fn")(calls.noting(lambda **_: now()))
    await operator.start_and_create(kex)
    await calls.wait_length(3)
    await switch.pause()
    paused = len(calls)
    await asyncio.sleep(1000)
    assert len(calls) == paused
    resumed = now()
    await switch.resume()
    await calls.wait_length(paused + 3)
    assert calls[paused] - resumed < 10
    assert get_pauses(calls.items[paused : paused + 3]) == pytest.approx([10, 10], abs=1)


# ------------------------------------------------------------------ handlers


@pytest.mark.parametrize("lifecycle", [kopf.lifecycles.one_by_one, kopf.lifecycles.all_at_once])
async def test_running_handlers_finish_and_the_next_ones_wait(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
    lifecycle: Any,
) -> None:
    """What is done is saved, so that it can be continued by anybody; and it is not done again."""
    release = asyncio.Event()

    @kopf.on.create("kopfexamples", id="first")
    async def first(**_: Any) -> None:
        calls.append("first begins")
        await release.wait()
        calls.append("first ends")

    kopf.on.create("kopfexamples", id="second")(calls.noting("second"))
    await operator.start(lifecycle=lifecycle)
    await kex.create()
    await calls.wait_length(1)
    await switch.pause()
    release.set()
    await kex.wait(lambda obj: '"success":true' in str(obj))
    await asyncio.sleep(100)  # nothing is expected to happen
    assert calls == ["first begins", "first ends"]
    await switch.resume()
    await kex.wait_handled()
    assert calls == ["first begins", "first ends", "second"]


@pytest.mark.parametrize("pause", [10, 1000])
async def test_retries_continue(operator: Operator, switch: Switch, kex: Objects, calls: Calls, pause: float) -> None:
    """Those that were due meanwhile come at once; those that are not, in time."""

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append((retry, now()))
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=100)

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await switch.pause()
    await asyncio.sleep(pause)
    assert len(calls) == 1
    await switch.resume()
    await kex.wait_handled()
    assert [retry for retry, _ in calls] == [0, 1]
    assert calls[1][1] - calls[0][1] == pytest.approx(max(100, pause), abs=15)


async def test_what_others_have_done_meanwhile_is_not_done_again(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting("called", error=kopf.TemporaryError("not yet", delay=20)))
    await operator.start_and_create(kex)
    await kex.wait(lambda obj: "not yet" in str(obj))
    await switch.pause()
    count = len(calls)
    await kex.merge(
        {
            "metadata": {
                "annotations": {
                    "kopf.zalando.org/fn": None,
                    "kopf.zalando.org/last-handled-configuration": '{"spec":{"field":"value"}}\n',
                }
            }
        }
    )
    await switch.resume()
    await asyncio.sleep(100)  # nothing is expected to happen
    assert len(calls) == count


async def test_raw_events_bring_the_latest_states(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.event("kopfexamples", id="fn")(calls.noting(lambda type, name, spec, **_: (type, name, spec.get("field"))))
    await operator.start()
    await kex.create_all(("same", "changed", "gone"))
    await calls.wait_length(3)
    calls.items.clear()
    await switch.pause()
    for value in ("one", "two", "three"):
        await kex.merge({"spec": {"field": value}}, "changed")
    await kex.delete("gone")
    await kex.create("new")
    await switch.resume()
    await calls.wait_length(3)
    await kex.create("last")
    await calls.wait_length(4)
    assert sorted(calls.items[:3]) == [
        ("ADDED", "new", "value"),
        ("DELETED", "gone", None),
        ("MODIFIED", "changed", "three"),
    ]


async def test_memos_live_on(operator: Operator, switch: Switch, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.update("kopfexamples", id="fn")
    async def fn(memo: kopf.Memo, **_: Any) -> None:
        memo.count = memo.get("count", 0) + 1
        calls.append(memo.count)

    await operator.start_and_handle(kex)
    await switch.pause()
    await kex.merge({"spec": {"field": "changed"}})
    await switch.resume()
    await kex.wait_handled(field="changed")
    assert calls == [1, 2]


# ------------------------------------------------------------------ indices


async def test_indices_are_refreshed_before_anything_is_handled(
    operator: Operator,
    switch: Switch,
    cluster: LocalCluster,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    @kopf.index("kopfstatusexamples")
    async def idx(name: str, spec: kopf.Spec, **_: Any) -> Any:
        return {name: spec.get("field")}

    kopf.on.create("kopfexamples", id="fn")(
        calls.noting(lambda idx, name, **_: (name, {key: list(values) for key, values in idx.items()}))
    )
    await sub.create("same")
    await sub.create("changed")
    await sub.create("gone")
    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    await kex.create_and_wait("a")
    await switch.pause()
    await kex.create("b")
    await sub.create("new")
    await sub.delete("gone")
    await sub.merge({"spec": {"field": "two"}}, "changed")
    cluster.faults.inject(action="delay", latency=0.3, verb="list", resource="kopfstatusexamples")
    await switch.resume()
    await kex.wait_handled("b")
    assert calls == [
        ("a", {"same": ["value"], "changed": ["value"], "gone": ["value"]}),
        ("b", {"same": ["value"], "changed": ["two"], "new": ["value"]}),
    ]


# ------------------------------------------------------------------ interruptions


async def test_nothing_is_kept_of_the_interrupted_streams(
    operator: Operator,
    switch: Switch,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.event("kopfexamples")(lambda name, **_: calls.append(name))

    def count_ended_tasks() -> int:
        gc.collect()
        return sum(isinstance(item, asyncio.Task) and item.done() for item in gc.get_objects())

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    counts = []
    for number in range(1, 11):
        await switch.pause()
        await kex.merge({"spec": {"field": f"changed-{number}"}})
        counts.append(count_ended_tasks())
        await switch.resume()
        await calls.wait_length(1 + number)
    assert max(counts[5:]) < counts[0] + 5, counts  # some of the test's own ones come and go


@pytest.mark.parametrize("moment", ["starting", "listing", "indexing"])
async def test_the_pause_can_come_at_any_moment_of_the_start(
    operator: Operator,
    switch: Switch,
    cluster: LocalCluster,
    kex: Objects,
    calls: Calls,
    moment: str,
) -> None:
    """Everything is resumed once, and only when it is our turn."""
    release = asyncio.Event()
    started = asyncio.Event()

    fn = calls.noting(lambda name, **_: name)
    kopf.on.create("kopfexamples", id="fn")(fn)
    kopf.on.resume("kopfexamples", id="fn")(fn)
    if moment == "indexing":

        @kopf.index("kopfexamples")
        async def idx(name: str, **_: Any) -> str:
            started.set()
            await release.wait()
            return name

    await kex.create_all(f"obj{number}" for number in range(5))
    if moment == "listing":
        operator.set("watching.chunk_size", 1)
        cluster.faults.inject(action="delay", latency=0.1, verb="list", resource="kopfexamples")
    waiting: dict[str, Callable[[], Awaitable[object]]] = {
        "starting": lambda: asyncio.sleep(0),
        "listing": lambda: _wait_for_requests(cluster, ("list", "kopfexamples", 200), 3),
        "indexing": started.wait,
    }
    cluster.reset_counters()
    await operator.launch()
    await waiting[moment]()
    await switch.pause()
    release.set()
    cluster.faults.clear()
    await switch.resume()
    await calls.wait_length(5)
    await kex.create_and_wait("last")
    assert sorted(calls) == ["last", *(f"obj{number}" for number in range(5))]


async def _wait_for_requests(cluster: LocalCluster, key: tuple[str, str, int], count: int) -> None:
    while cluster.counters.get(key, 0) < count:
        await asyncio.sleep(0.001)


async def test_flapping(operator: Operator, switch: Switch, kex: Objects, calls: Calls) -> None:
    """Many short pauses while the objects change: every object is handled up to the end, and created once."""
    kopf.on.create("kopfexamples", id="created")(calls.noting(lambda name, **_: name))

    @kopf.on.update("kopfexamples")
    async def updated(**_: Any) -> None:
        await asyncio.sleep(0.005)

    await operator.start()

    async def change() -> None:
        for number in range(20):
            await kex.create(f"obj{number}")
            await kex.merge({"spec": {"field": f"v{number}"}}, f"obj{number // 2}")
            await asyncio.sleep(0.01)

    changing = asyncio.create_task(change())
    while not changing.done():
        await switch.pause()
        await asyncio.sleep(0.01)
        await switch.resume()
        await asyncio.sleep(0.01)
    await changing
    for number in range(20):
        await kex.wait_handled(f"obj{number}", field=f"v{2 * number + 1}" if number < 10 else "value")
    assert sorted(calls) == sorted(f"obj{number}" for number in range(20))


async def test_nothing_is_started_if_the_operator_exits_while_it_waits_for_the_indices(
    operator: Operator,
    cluster: LocalCluster,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.index("kopfstatusexamples", id="idx")(lambda name, **_: name)
    kopf.on.event("kopfexamples", id="fn")(calls.noting(lambda name, **_: name))
    await kex.create()
    cluster.faults.inject(action="delay", latency=1000, verb="list", resource="kopfstatusexamples")
    await operator.start()
    await operator.stop()
    assert not calls.items
