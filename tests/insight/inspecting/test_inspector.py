"""What is told of an object by the operator, compared to what happens to the object then; in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

import kopf
from kopf._insight.backlog import Backlog
from kopf._insight.explaining.explanation import Explanation, HandlerInfo, Query
from kopf._insight.explaining.wording import render
from kopf._insight.inspecting.decision_journal import MAX_ATTEMPTS, MAX_DECISIONS, MAX_OBJECTS, DecisionJournal
from kopf._insight.inspecting.inspector import Inspector
from kopf._values.objects import KubeObject
from kopf._values.replica_state import ReplicaState
from kopf._values.slots import ALL_SLOTS, Slots, get_slot
from kopf.testing import Simulation
from tests.behaviour.running import do_nothing
from tests.insight.console.test_following import PEERING_CRD
from tests.insight.explaining.objects_and_facts import RESOURCE
from tests.insight.simulated import apply, begin, get_observers
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)

Ask = Callable[[], Awaitable[Explanation]]


@dataclasses.dataclass
class Spec:
    size: int = 0


@pytest.fixture
async def ask(simulation: Simulation, registry: kopf.OperatorRegistry) -> Ask:
    """Ask about the object, in the event loop of the operator."""
    observers = get_observers(simulation)
    backlog = Backlog(observers, observers.clock)
    inspector = Inspector(observers, backlog, registry=registry, serves=lambda _: True)

    async def ask() -> Explanation:
        return await simulation.wait(inspector.explain(Query("kex", "default", "obj")))

    return ask


def get_handler(answer: Explanation, name: str) -> HandlerInfo:
    [info] = [info for info in answer["handlers"] if info["id"] == name]
    return info


def get_delay(answer: Explanation, time: str | None) -> float:
    """In how many seconds it is, as of the answer."""
    assert time is not None
    parse = datetime.datetime.fromisoformat
    return (parse(time) - parse(answer["at"])).total_seconds()


@pytest.mark.parametrize("error", [kopf.TemporaryError("not yet", delay=10), RuntimeError("oops")])
async def test_next_attempts(simulation: Simulation, ask: Ask, error: Exception) -> None:
    calls: list[float] = []

    @kopf.on.create("kopfexamples", id="create_fn", backoff=7)
    async def create_fn(**_: Any) -> None:
        calls.append(simulation.now)
        raise error

    await begin(simulation, make("obj"))
    for _ in range(3):
        await simulation.advance(seconds=2)
        answer, count, now = await ask(), len(calls), simulation.now
        progress = get_handler(answer, "create_fn")["progress"]
        assert progress is not None
        assert (progress["outcome"], progress["attempts"]) == ("retrying", count)
        await simulation.until(lambda count=count: len(calls) > count)  # type: ignore[misc]
        assert abs(calls[-1] - now - get_delay(answer, progress["next"])) < 0.1
        assert abs(calls[-1] - now - get_delay(answer, answer["state"]["next"])) < 0.1


async def test_nothing_is_next_while_the_operator_is_paused(simulation: Simulation, ask: Ask) -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.clusterwide = True

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=100)

    peering = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
    await simulation.apply(PEERING_CRD)
    await simulation.apply(peering)
    await begin(simulation, make("obj"), seconds=5)
    assert "is tried again in 1 min" in render(await ask())
    record = {"priority": 100, "lifetime": 600, "lastseen": simulation.wall_clock.isoformat()}
    await apply(simulation, {**peering, "status": {"senior": record}}, seconds=5)
    answer = await ask()
    assert "senior" in str(answer["operator"])
    assert (answer["state"]["name"], answer["state"]["next"]) == ("paused", None)
    assert "is tried again when the operator goes on, after 1 attempt" in render(answer)


async def test_replicas_tell_if_the_object_is_theirs(simulation: Simulation, ask: Ask) -> None:
    kopf.on.event("kopfexamples")(do_nothing)
    await begin(simulation, make("obj"), seconds=5)
    answer = await ask()
    assert not [note for note in answer["notes"] if "slot" in note]
    slot = get_slot(str(answer["object"]["uid"]))
    others: Mapping[str, Slots]
    for held, others, end in (
        (ALL_SLOTS, {}, f"it handles slot {slot} of the object."),
        (ALL_SLOTS - {slot}, {"web-0": frozenset({slot})}, f"slot {slot} of the object, which belongs to web-0."),
        (ALL_SLOTS - {slot}, {}, f"it does not handle slot {slot} of the object, which has no owner now."),
    ):
        state = ReplicaState(mode="shards", name="web", identity="web-1", held=held, others=others)
        get_observers(simulation).share_changed(state)
        [note] = [note for note in (await ask())["notes"] if "slot" in note]
        assert note.startswith(f"This is the member web-1 of 'web' with {len(held)} of 256 slots")
        assert note.endswith(end)


async def test_a_standby_that_indexes_the_object_does_not_handle_it(simulation: Simulation, ask: Ask) -> None:
    @kopf.on.startup()
    def coordinate(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.coordination.mode = "leader"

    kopf.index("kopfexamples", id="index_fn")(lambda **_: {})
    kopf.on.create("kopfexamples", id="create_fn")(do_nothing)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kopf", "labels": {"kopf.dev/coordination": "kopf"}},
        "spec": {"holderIdentity": "other_1", "leaseDurationSeconds": 600},
    }
    await simulation.apply(lease)
    await begin(simulation, make("obj"), seconds=5)
    assert "It is not handled by this replica" in render(await ask())


async def test_next_attempts_when_the_object_is_left_alone(simulation: Simulation, ask: Ask) -> None:
    """A filter fails, so the handlers wait longer than they are to."""
    calls: list[float] = []

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        calls.append(simulation.now)
        raise kopf.TemporaryError("not yet", delay=10)

    kopf.on.create("kopfexamples", id="other_fn", when=lambda spec, **_: spec["nosuch"])(do_nothing)

    await begin(simulation, make("obj"), seconds=22)
    answer, count, now = await ask(), len(calls), simulation.now
    assert answer["state"]["errors"] > 0
    assert "is left alone after" in answer["state"]["text"]
    assert get_handler(answer, "other_fn")["verdict"] == "unknown"
    progress = get_handler(answer, "create_fn")["progress"]
    assert progress is not None
    await simulation.until(lambda: len(calls) > count)
    assert abs(calls[-1] - now - get_delay(answer, progress["next"])) < 0.1


async def test_next_runs_of_timers_and_daemons(simulation: Simulation, ask: Ask) -> None:
    kopf.timer("kopfexamples", id="timer_fn", interval=30, initial_delay=5)(do_nothing)
    kopf.timer("kopfexamples", id="idle_fn", interval=30, idle=50)(do_nothing)

    @kopf.daemon("kopfexamples", id="daemon_fn")
    async def daemon_fn(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=40)

    await begin(simulation, make("obj"), seconds=10)
    await simulation.apply(make("obj", size=1))  # the idle time begins anew
    await simulation.advance(seconds=2)
    answer, now = await ask(), simulation.now
    expected = {}
    for name in ("timer_fn", "idle_fn", "daemon_fn"):
        run = get_handler(answer, name)["run"]
        assert run is not None
        assert run["state"] == "waiting"
        expected[name] = now + get_delay(answer, run["next"])
    await simulation.advance(seconds=60)
    for name, time in expected.items():
        following = [call.time for call in simulation.journal.get_calls(name) if call.time > now]
        assert abs(following[0] - time) < 0.1, name


async def test_daemons_that_have_exited(simulation: Simulation, ask: Ask) -> None:
    kopf.daemon("kopfexamples", id="daemon_fn")(do_nothing)

    @kopf.daemon("kopfexamples", id="other_fn", when=lambda spec, **_: not spec.get("stopped"))
    async def other_fn(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    await begin(simulation, make("obj"))
    await apply(simulation, make("obj", stopped=True))
    answer = await ask()
    texts = [info["run"]["text"] for info in answer["handlers"] if info["run"] is not None]
    assert texts == [
        "is stopped: it has exited by itself, and is not started again until the operator restarts",
        "is stopped: the object does not match the filters",
    ]


async def test_work_that_cannot_be_saved(simulation: Simulation, ask: Ask) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=1)

    await simulation.restart()
    simulation.faults.fail("PATCH", "kopfexamples", status=422)
    await apply(simulation, make("obj"), seconds=10)
    answer = await ask()
    assert answer["state"]["unsaved"] is not None
    assert "create_fn" in answer["state"]["unsaved"]
    assert "the API refuses them" in answer["state"]["unsaved"]
    progress = get_handler(answer, "create_fn")["progress"]
    assert progress is not None
    assert progress["saved"] is False
    assert answer["decisions"][0]["error"] is not None
    assert "422" in answer["decisions"][0]["error"]


async def test_after_a_crash(simulation: Simulation, ask: Ask) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=100)

    await begin(simulation, make("obj"), seconds=10)
    await simulation.crash()
    await simulation.advance(seconds=10)
    await simulation.restart()
    await simulation.advance(seconds=10)
    answer = await ask()
    progress = get_handler(answer, "create_fn")["progress"]
    assert progress is not None
    assert (progress["attempts"], progress["error"]) == (1, "TemporaryError: not yet")
    assert 60 < get_delay(answer, progress["next"]) < 75


@pytest.mark.parametrize(
    ("mood", "name", "text"),
    [
        ("slow", "handling", "is being handled by create_fn"),
        ("late", "waiting", "waits for the next attempts"),
        ("fine", "running", "is handled; its daemons & timers run"),
        ("third", "queued", "waits in the queue, number 2 of 2"),
    ],
)
async def test_states(simulation: Simulation, ask: Ask, mood: str, name: str, text: str) -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.queueing.worker_limit = 1

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(spec: kopf.Spec, **_: Any) -> None:
        await asyncio.sleep(1000 if spec.get("mood") == "slow" else 0)
        if spec.get("mood") == "late":
            raise kopf.TemporaryError("not yet", delay=1000)

    kopf.timer("kopfexamples", id="timer_fn", interval=1000)(do_nothing)
    others = [make("first", mood="slow"), make("second")] if mood == "third" else []
    await begin(simulation, *others, make("obj", mood=mood), seconds=10)
    state = (await ask())["state"]
    assert state["name"] == name
    assert state["text"].startswith(text)
    assert (state["position"], state["handler"]) == (
        2 if name == "queued" else None,
        "create_fn" if name == "handling" else None,
    )


async def test_without_the_object_the_decisions_are_told(simulation: Simulation, ask: Ask) -> None:
    kopf.on.create("kopfexamples", id="create_fn")(do_nothing)
    await begin(simulation, make("obj"))
    simulation.faults.fail("GET", "kopfexamples", status=403)
    answer = await ask()
    assert answer["notes"][0].startswith("The operator cannot get the object: ")
    assert (answer["state"]["name"], answer["handlers"]) == ("unknown", [])
    assert answer["decisions"][-1]["called"] == ["create_fn"]


async def test_resuming_is_told_from_what_was_resumed(simulation: Simulation, ask: Ask) -> None:
    @kopf.on.resume("kopfexamples", id="resume_fn")
    async def resume_fn(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=100)

    await begin(simulation, make("obj"))
    assert get_handler(await ask(), "resume_fn")["verdict"] == "later"
    await begin(simulation)
    info = get_handler(await ask(), "resume_fn")
    assert (info["verdict"], info["progress"] is not None) == ("called", True)


async def test_only_a_few_words_are_remembered_of_each_look(simulation: Simulation, ask: Ask) -> None:
    for number in range(MAX_ATTEMPTS + 2):

        @kopf.on.create("kopfexamples", id=f"fn{number}")
        async def create_fn(**_: Any) -> None:
            raise kopf.TemporaryError("not yet" * 1000, delay=10)

    await begin(simulation, make("obj"), seconds=12 * MAX_DECISIONS)
    decisions = (await ask())["decisions"]
    assert len(decisions) == MAX_DECISIONS
    assert max(len(decision["attempts"]) for decision in decisions) <= MAX_ATTEMPTS
    errors = [attempt["error"] for decision in decisions for attempt in decision["attempts"]]
    assert max(len(error or "") for error in errors) < 350


class Modelled(
    kopf.CustomResource[Spec, dict[str, Any]],
    group="kopf.dev",
    version="v1",
    kind="KopfExample",
    plural="kopfexamples",
):
    """The definition in the cluster is older: it accepts anything."""


async def test_handlers_of_unfit_objects_are_not_called(simulation: Simulation, ask: Ask) -> None:
    @kopf.on.create(Modelled, id="unfit_fn")
    async def unfit_fn(spec: Spec, **_: Any) -> None: ...

    kopf.on.create(Modelled, id="other_fn")(do_nothing)
    await begin(simulation, make("obj", size="text"))
    answer = await ask()
    decisions = answer["decisions"]
    assert ["other_fn"] in [decision["called"] for decision in decisions]
    assert all("unfit_fn" not in decision["called"] for decision in decisions)
    attempts = [item for decision in decisions for item in decision["attempts"] if item["handler"] == "unfit_fn"]
    assert {(item["outcome"], item["next"]) for item in attempts} == {("pending", None)}
    assert "unfit_fn was not called: UnfitObjectError: The object does not fit KopfExample" in render(answer)


def test_the_journal_is_bounded() -> None:
    journal = DecisionJournal(Backlog())
    for number in range(MAX_OBJECTS + 10):
        for seen in (number, 0):
            obj = KubeObject.from_dict({"metadata": {"name": f"name{seen}", "uid": f"uid{seen}"}})
            journal.pass_ended(RESOURCE, f"uid{seen}", obj, None, None, 0.0)
    assert len(journal._records) == MAX_OBJECTS
    assert (RESOURCE, "uid1") not in journal._records
    assert journal.find_key(RESOURCE, None, "name1005") == "uid1005"
    assert (RESOURCE, "uid0") in journal._records
