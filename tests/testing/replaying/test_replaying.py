"""Recordings of simulations, under faults: the same handlers do the same, others diverge, and it is told where."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kopf
from kopf._replay.recorded_run import RecordedRun
from kopf._replay.recording import recording_to
from kopf._replay.recording_writer import Writer
from kopf.testing import Replay, Simulation, SimulationError, replay, simulate
from tests.testing.kopfexamples import CRD, make

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
Declare = Callable[[kopf.OperatorRegistry], object]


def declare(registry: kopf.OperatorRegistry) -> None:
    """All kinds of handlers, with delays, retries, threads, and random numbers."""

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.networking.error_backoffs = [1, 2, 4]

    @kopf.on.create("kopfexamples", registry=registry, id="create_fn")
    def create_fn(name: str, retry: int, patch: kopf.Patch, **_: Any) -> dict[str, int]:
        time.sleep(random.random())
        if retry < 2 and name.endswith("3"):
            raise kopf.TemporaryError("Not yet.", delay=random.randrange(10))
        patch.status["seen"] = random.randrange(1000)
        return {"size": 1}

    @kopf.on.update("kopfexamples", registry=registry, id="update_fn")
    async def update_fn(**_: Any) -> None:
        await asyncio.sleep(3)

    kopf.on.delete("kopfexamples", registry=registry, id="delete_fn")(nothing)
    kopf.on.event("kopfexamples", registry=registry, id="event_fn")(nothing)

    @kopf.timer("kopfexamples", interval=7, registry=registry)
    async def timer_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.status["ticked"] = random.randrange(1000)

    @kopf.daemon("kopfexamples", registry=registry)
    def daemon_fn(stopped: Any, **_: Any) -> None:
        stopped.wait(100)

    @kopf.index("kopfexamples", registry=registry)
    def index_fn(name: str, **_: Any) -> dict[str, int]:
        return {name: 1}


async def nothing(**_: Any) -> None:
    pass


def only(decorator: Any, id: str, fn: Callable[..., Any]) -> Declare:
    """Declare nothing but the handler."""
    return lambda registry: decorator("kopfexamples", registry=registry, id=id)(fn)


def more(decorator: Any, id: str, fn: Callable[..., Any]) -> Declare:
    """Declare the usual handlers, and this one."""

    def declare_more(registry: kopf.OperatorRegistry) -> None:
        declare(registry)
        only(decorator, id, fn)(registry)

    return declare_more


async def live_calmly(simulation: Simulation) -> None:
    for n in range(4):
        await simulation.apply(make(f"obj{n}"))
    await simulation.advance(seconds=20)
    await simulation.patch("kopfexamples", "obj1", {"spec": {"size": 2}})
    await simulation.advance(seconds=20)
    await simulation.delete("kopfexamples", "obj2")
    await simulation.advance(seconds=20)
    await simulation.stop()


async def live_in_trouble(simulation: Simulation) -> None:
    simulation.faults.fail(rate=0.2)
    simulation.faults.lag(0, up_to=1)
    simulation.cluster.faults.drop_watches_every(5)
    await live_calmly(simulation)


def record(
    path: pathlib.Path,
    story: Callable[[Simulation], Awaitable[None]],
    declare: Declare = declare,
    **options: Any,
) -> Any:
    """Record a simulation; get its journal."""

    async def live(simulation: Simulation) -> Any:
        simulation.instruments = instruments
        await simulation.restart()
        await simulation.advance()
        await story(simulation)
        return simulation.journal

    registry = kopf.OperatorRegistry()
    declare(registry)
    with (
        contextlib.closing(Writer(path, 2**26)) as writer,
        recording_to(writer, options={"identity": "simulation"}, seed=options.get("seed", 0)) as instruments,
    ):
        return simulate(live, registry=registry, operator=False, **{"crds": CRD, **options})


def replay_with(path: pathlib.Path, declare: Declare = declare) -> Replay:
    registry = kopf.OperatorRegistry()
    declare(registry)
    return replay(path, registry=registry)


@pytest.mark.parametrize(("story", "seed"), [(live_calmly, 1), (live_in_trouble, 2), (live_in_trouble, 3)])
def test_same_handlers_have_the_same_journal(tmp_path: pathlib.Path, story: Any, seed: int) -> None:
    journal = record(tmp_path / "recording", story, seed=seed)
    result = replay_with(tmp_path / "recording")
    assert result, str(result)
    assert not result.is_cut
    assert result.requests > 20
    assert str(result.journal) == str(result.recorded_journal)

    def pick(calls: Any) -> list[Any]:
        return [(f"{call.time:.3f}", call.id, call.name, call.retry, call.outcome, call.error) for call in calls]

    assert pick(result.journal.get_calls()) == pick(journal.get_calls())


def test_replays_are_equal_to_the_byte(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "recording", live_in_trouble)
    first, second = (replay_with(tmp_path / "recording") for _ in range(2))
    assert str(first.journal) == str(second.journal)
    assert str(first.logs) == str(second.logs)


def test_another_patch_is_told_with_its_difference(tmp_path: pathlib.Path) -> None:
    declare_one = only(kopf.on.create, "create_fn", lambda **_: {"size": 1})
    record(tmp_path / "recording", live_calmly, declare_one)
    result = replay_with(tmp_path / "recording", only(kopf.on.create, "create_fn", lambda **_: {"size": 2}))
    assert not result
    assert {item.kind for item in result.divergences} == {"different"}
    assert {item.place for item in result.divergences} == {f"kopfexamples.kopf.dev default/obj{n}" for n in range(4)}
    assert {item.details for item in result.divergences} == {("status.create_fn.size: 1 -> 2",)}
    assert "status.create_fn.size: 1 -> 2" in str(result)
    assert replay_with(tmp_path / "recording", declare_one)


def test_a_handler_that_is_gone_is_missing(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "recording", live_calmly, more(kopf.on.event, "another_fn", nothing))
    result = replay_with(tmp_path / "recording")
    missing = [item.text for item in result.divergences if item.kind == "missing"]
    assert set(missing) == {"event handler 'another_fn': it was recorded, but has not happened"}
    assert len(missing) > 10


def test_a_new_handler_is_new(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "recording", live_calmly)
    result = replay_with(tmp_path / "recording", more(kopf.on.event, "another_fn", nothing))
    assert {item.kind for item in result.divergences} == {"new"}
    assert all("event handler 'another_fn': it was never recorded" in item.text for item in result.divergences)


def test_another_outcome_is_told_with_its_error(tmp_path: pathlib.Path) -> None:
    async def fail_for_twos(spec: kopf.Spec, **_: Any) -> None:
        if spec.get("size") == 2:
            raise ValueError("No twos.")

    record(tmp_path / "recording", live_calmly, only(kopf.on.event, "event_fn", nothing))
    result = replay_with(tmp_path / "recording", only(kopf.on.event, "event_fn", fail_for_twos))
    assert [item.kind for item in result.divergences] == ["outcome"]
    assert result.divergences[0].place == "kopfexamples.kopf.dev default/obj1"
    assert result.divergences[0].details == ("-succeeded", "+ValueError: No twos.")


def test_another_order_of_writes_is_told(tmp_path: pathlib.Path) -> None:
    def write_in_order(*names: str) -> Declare:
        from kopf._client.http.api import get_current_api

        async def create_fn(namespace: str, name: str, **_: Any) -> None:
            path = f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfexamples/{name}"
            for field in names:
                await get_current_api().patch(path, payload={"metadata": {"annotations": {field: "x"}}})
                await asyncio.sleep(1)

        return only(kopf.on.create, "create_fn", create_fn)

    record(tmp_path / "recording", live_calmly, write_in_order("a", "b"))
    result = replay_with(tmp_path / "recording", write_in_order("b", "a"))
    assert "order" in {item.kind for item in result.divergences}
    assert replay_with(tmp_path / "recording", write_in_order("a", "b"))


def test_shorter_delays_of_retries_are_seen(tmp_path: pathlib.Path) -> None:
    def retry_after(delay: int) -> Declare:
        async def create_fn(retry: int, **_: Any) -> None:
            if not retry:
                raise kopf.TemporaryError("Not yet.", delay=delay)

        return only(kopf.on.create, "create_fn", create_fn)

    record(tmp_path / "recording", live_calmly, retry_after(10))
    result = replay_with(tmp_path / "recording", retry_after(5))
    assert "different" in {item.kind for item in result.divergences}
    assert any("delayed" in line for item in result.divergences for line in item.details)


def test_failing_startup_is_told(tmp_path: pathlib.Path) -> None:
    def declare_broken(registry: kopf.OperatorRegistry) -> None:
        declare(registry)

        @kopf.on.startup(registry=registry)
        def broken_fn(**_: Any) -> None:
            raise kopf.PermanentError("It cannot be.")

    record(tmp_path / "recording", live_calmly)
    result = replay_with(tmp_path / "recording", declare_broken)
    assert "ending" in {item.kind for item in result.divergences}
    assert "It cannot be." in str(result)


def test_stuck_handlers_are_errors(tmp_path: pathlib.Path) -> None:
    async def go_round(**_: Any) -> None:
        while True:
            pass

    record(tmp_path / "recording", live_calmly, only(kopf.on.event, "event_fn", nothing))
    registry = kopf.OperatorRegistry()
    only(kopf.on.event, "event_fn", go_round)(registry)
    with pytest.raises(SimulationError, match="The event loop is blocked"):
        replay(tmp_path / "recording", registry=registry, patience=0.5)


async def test_coroutines_cannot_replay(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SimulationError, match="in a regular function"):
        replay(tmp_path / "recording")


def test_handlers_have_the_recorded_date_and_no_cluster(tmp_path: pathlib.Path) -> None:
    seen: list[tuple[datetime.datetime, str]] = []

    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        now = datetime.datetime.now(datetime.UTC)
        patch.status["seen"] = now.isoformat()
        seen.append((now, pathlib.Path(os.environ["KUBECONFIG"]).read_text()))

    kubeconfig = os.environ.get("KUBECONFIG")
    declare_noting = only(kopf.on.create, "create_fn", create_fn)
    record(tmp_path / "recording", live_calmly, declare_noting, freeze_wall_clock=True)
    recorded = [*seen]
    seen.clear()
    assert replay_with(tmp_path / "recording", declare_noting)
    assert [date for date, _ in seen] == [date for date, _ in recorded]
    assert all("server:" in text for _, text in recorded)
    assert not any("server:" in text for _, text in seen)
    assert os.environ.get("KUBECONFIG") == kubeconfig


def test_webhooks_and_logins_are_not_replayed(tmp_path: pathlib.Path) -> None:
    def declare_more(registry: kopf.OperatorRegistry) -> None:
        declare(registry)

        @kopf.on.login(registry=registry)
        def login_fn(**_: Any) -> None:
            raise kopf.PermanentError("There are no credentials here.")

        @kopf.on.validate("kopfexamples", registry=registry)
        def validate_fn(**_: Any) -> None:
            pass

    record(tmp_path / "recording", live_calmly)
    result = replay_with(tmp_path / "recording", declare_more)
    assert result, str(result)


def test_random_functions_of_all_kinds_are_replayed(tmp_path: pathlib.Path) -> None:
    seen: dict[str, list[Any]] = {}

    def create_fn(name: str, **_: Any) -> None:
        bits = random.getrandbits(64), random.randbytes(4), random.choice("abcdefgh"), random.sample(range(100), 5)
        seen[name] = [*bits, random.random(), random.uniform(1, 2), random.gauss(0, 1), random.gauss(0, 1)]
        random.seed(1)
        seen[name] += [random.random()]

    declare_random = only(kopf.on.create, "create_fn", create_fn)
    record(tmp_path / "recording", live_calmly, declare_random)
    recorded = {**seen}
    seen.clear()
    assert replay_with(tmp_path / "recording", declare_random)
    assert seen == recorded
    assert len({str(values) for values in seen.values()}) == 4, "objects have numbers of their own"
    assert {values[-1] for values in seen.values()} == {random.Random(1).random()}


@pytest.mark.parametrize("mode", ["leader", "shards"])
def test_replicas_are_replayed_alone(tmp_path: pathlib.Path, mode: Any) -> None:
    def declare_replica(registry: kopf.OperatorRegistry) -> None:
        declare(registry)

        @kopf.on.startup(registry=registry)
        def coordinate(settings: kopf.OperatorSettings, **_: Any) -> None:
            settings.coordination.mode = mode

    async def live(simulation: Simulation) -> None:
        await simulation.advance(seconds=30)  # the first replica waits for former ones
        await live_calmly(simulation)

    recorded = record(tmp_path / "recording", live, declare_replica)
    result = replay_with(tmp_path / "recording", declare_replica)
    assert result, str(result)
    assert len(recorded.get_calls("create_fn")) == len(result.journal.get_calls("create_fn")) > 4


def test_moves_of_objects_between_replicas_are_replayed(tmp_path: pathlib.Path) -> None:
    """The recorded replica opens its streams anew when it loses objects, and lists them anew when it gets them back."""
    other = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "kopf-9",
            "labels": {"kopf.dev/coordination": "kopf"},
            "annotations": {"kopf.dev/replica": '{"mode": "shards", "held": "none", "seen": 0}'},
        },
        "spec": {"holderIdentity": "other_1", "leaseDurationSeconds": 15},
    }

    def declare_replica(registry: kopf.OperatorRegistry) -> None:
        only(kopf.on.update, "update_fn", nothing)(registry)

        @kopf.on.startup(registry=registry)
        def coordinate(settings: kopf.OperatorSettings, **_: Any) -> None:
            settings.coordination.mode = "shards"

    async def live(simulation: Simulation) -> None:
        await simulation.advance(seconds=30)
        for n in range(8):
            await simulation.apply(make(f"obj{n}"))
        await simulation.apply(other)
        await simulation.advance(seconds=60)  # the other replica never renews its Lease
        for n in range(8):
            await simulation.patch("kopfexamples", f"obj{n}", {"spec": {"size": 2}})
        await simulation.advance(seconds=20)
        await simulation.stop()

    recorded = record(tmp_path / "recording", live, declare_replica)
    assert len(recorded.get_calls("update_fn")) == 8
    opened = RecordedRun(tmp_path / "recording").list_actions("open")
    assert [action for action in opened if "shardSelector" in action.fields["params"]]
    result = replay_with(tmp_path / "recording", declare_replica)
    assert result, str(result)
    assert len(result.journal.get_calls("update_fn")) == 8


def test_peering_is_replayed(tmp_path: pathlib.Path) -> None:
    """For long enough that the clocks would drift apart, as the records are renewed after random times."""

    async def live(simulation: Simulation) -> None:
        await simulation.advance(minutes=20)
        await simulation.stop()

    peering = "{apiVersion: kopf.dev/v1, kind: ClusterKopfPeering, metadata: {name: default}}"
    other = "{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: obj0}}"
    settings = kopf.OperatorSettings()
    settings.peering.clusterwide = True
    crds = [CRD, ROOT / "examples/peering/crds.yaml", peering, other]
    record(tmp_path / "recording", live, crds=crds, settings=settings)
    result = replay_with(tmp_path / "recording")
    assert result, str(result)
    assert result.requests > 20
