"""What the console makes of the work of a real operator: states, timelines, errors; and nothing of secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

import kopf
from kopf._insight.backlog import Backlog
from kopf._insight.console.console import Console
from kopf._insight.console.history import ObjectRecord
from kopf._insight.console.listeners import collecting_logs
from kopf._insight.endpoint.console_server import AnswerError, Routes
from kopf._insight.explaining.explanation import Explanation
from kopf._values import codec
from kopf.testing import Simulation
from tests.behaviour.running import do_nothing
from tests.insight.simulated import apply, begin, get_observers
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)

HOSTILE = "<img src=x onerror=alert(1)>"


async def explain_nothing(request: web.BaseRequest) -> Explanation:
    raise AnswerError("It is not asked for here.")


@pytest.fixture
def console(simulation: Simulation) -> Iterator[Console]:
    observers = get_observers(simulation)
    console = Console(observers, Backlog(observers, observers.clock), Routes(), explain_nothing)
    with collecting_logs(console.history):
        yield console


def find(console: Console, name: str = "obj") -> ObjectRecord:
    [record] = [item for item in console.history.watch() if item.name == name]
    return record


def read_entries(console: Console, sort: str = "", id: int | None = None) -> list[list[Any]]:
    """The entries of the timeline: of the object, or of the operator itself."""
    entries = console.history.get_timeline(find(console).id if id is None else id) or []
    return [entry for entry in entries if sort in ("", entry[2])]


def read(console: Console) -> list[tuple[str, str]]:
    return [(sort, text) for _, _, sort, _, text, *_ in read_entries(console)]


def read_all(console: Console) -> str:
    """All that is kept or shown."""
    records = console.history.watch()
    entries = [entry for id in (0, *(item.id for item in records)) for entry in read_entries(console, id=id)]
    rows = [item.make_row() for item in records]
    panels = [console.read_panel(name) for name in console._panels]
    kept = b"".join(encoded for item in records for encoded in item.entries)
    return (kept + codec.encode([entries, rows, panels])).decode()


async def test_way_of_an_object(simulation: Simulation, console: Console) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(logger: kopf.Logger, **_: Any) -> dict[str, str]:
        logger.info("Hello %s", HOSTILE)
        return {"done": "yes"}

    await begin(simulation, make("obj"))
    record = find(console)
    assert (record.state, record.note, record.next_at) == ("idle", "", 0)
    timeline = read(console)
    sorts = [sort for sort, _ in timeline if sort not in ("event", "log")]
    assert sorts[:4] == ["seen", "look", "attempt", "patch"]
    assert sorted(sorts[4:]) == ["patch", "seen", "seen"]  # our writes come back when they come back
    texts = [text for _, text in timeline]
    assert texts[0].startswith("ADDED, version ")
    assert texts[1] == "creation: calls create_fn"
    assert ("log", f"Hello {HOSTILE}") in timeline
    assert any(text.startswith("create_fn succeeded in ") for text in texts)
    assert any("own write, back after" in text for text in texts)
    assert ("event", f"Logging: Hello {HOSTILE}") in timeline
    assert '+ status.create_fn.done: "yes"' in [line for entry in read_entries(console, "patch") for line in entry[5]]
    await simulation.delete("kopfexamples", "obj")
    await simulation.settle()
    assert find(console).state == "gone"


async def test_streams_for_the_operator_itself_are_watched(simulation: Simulation, console: Console) -> None:
    kopf.on.event("kopfexamples")(do_nothing)

    await begin(simulation)
    queues = console.read_panel("queues")["queues"]
    uses = {queue["resource"]: (queue["use"], queue["watched"]) for queue in queues}
    assert uses == {
        "kopfexamples.v1.kopf.dev": ("objects", True),
        "customresourcedefinitions.v1.apiextensions.k8s.io": ("operator", True),
    }


async def test_quiet_streams_are_no_trouble(simulation: Simulation, console: Console) -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.watching.inactivity_timeout = 20

    kopf.on.event("kopfexamples")(do_nothing)

    await begin(simulation)
    await simulation.advance(seconds=25)
    [queue] = [
        queue for queue in console.read_panel("queues")["queues"] if queue["resource"] == "kopfexamples.v1.kopf.dev"
    ]
    assert queue["interruption"] == "nothing has come for long, so it was opened anew"
    assert [entry for entry in read_entries(console, "stream", id=0) if entry[3] > 0] == []


async def test_changes_and_their_differences(simulation: Simulation, console: Console) -> None:
    kopf.on.update("kopfexamples", id="update_fn")(do_nothing)

    await begin(simulation, make("obj", size=1))
    await simulation.patch("kopfexamples", "obj", {"spec": {"size": 2}})
    await simulation.settle()
    assert [(entry[4], entry[5]) for entry in read_entries(console, "look") if len(entry) > 5] == [
        ("update: calls update_fn", ["~ spec.size: 1 → 2"]),
    ]


async def test_retries_and_failures(simulation: Simulation, console: Console) -> None:
    @kopf.on.create("kopfexamples", retries=2, id="create_fn")
    async def create_fn(spec: kopf.Spec, **_: Any) -> None:
        if not spec.get("fine"):
            raise kopf.TemporaryError(HOSTILE, delay=100)

    kopf.on.update("kopfexamples", id="update_fn")(do_nothing)

    await begin(simulation, make("obj"), seconds=10)
    record = find(console)
    assert record.state == "retrying"
    assert record.note.endswith(f"again in 100 s: TemporaryError: {HOSTILE}")
    now = simulation.wall_clock.timestamp() * 1000
    assert 80_000 < record.next_at - now < 100_000
    await simulation.advance(seconds=100)
    await simulation.settle()
    record = find(console)
    assert (record.state, record.next_at) == ("failed", 0)
    assert "create_fn failed permanently" in record.note
    [group] = [item for item in console.read_panel("errors") if item["count"] == 2]
    assert group["text"] == f"TemporaryError: {HOSTILE}"
    assert "test_following.py" in group["place"]
    await simulation.patch("kopfexamples", "obj", {"spec": {"fine": True}})
    await simulation.settle()
    record = find(console)
    assert (record.state, record.note) == ("idle", "")


async def test_those_who_wait_for_a_worker_are_shown(simulation: Simulation, console: Console) -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.queueing.worker_limit = 1

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        await asyncio.sleep(100)

    await begin(simulation, *[make(name) for name in ("one", "another")], seconds=10)
    assert [find(console, name).state for name in ("one", "another")] == ["handling", "queued"]
    await simulation.advance(seconds=300)
    assert [find(console, name).state for name in ("one", "another")] == ["idle", "idle"]


async def test_errors_of_the_api(simulation: Simulation, console: Console) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["bad label!"] = "x"

    await begin(simulation, make("obj"), seconds=3)
    assert find(console).state == "retrying"
    assert any(sort == "error" and "bad label" in text and "again in" in text for sort, text in read(console))
    assert "the framework" in {group["who"] for group in console.read_panel("errors")}


async def test_daemons_and_timers(simulation: Simulation, console: Console) -> None:
    @kopf.daemon("kopfexamples", cancellation_timeout=1, id="daemon_fn")
    async def daemon_fn(**_: Any) -> None:
        await asyncio.Event().wait()

    @kopf.timer("kopfexamples", interval=60, id="timer_fn")
    async def timer_fn(retry: int, **_: Any) -> None:
        pass

    @kopf.timer("kopfexamples", interval=60, retries=1, id="failing_fn")
    async def failing_fn(**_: Any) -> None:
        raise kopf.PermanentError("no")

    await begin(simulation, make("obj"), seconds=130)
    panel = console.read_panel("background")
    assert panel["counts"] == [
        ["daemon_fn", "daemon", "running", 1],
        ["failing_fn", "timer", "failed", 1],
        ["timer_fn", "timer", "waiting", 1],
    ]
    [run] = [run for run in panel["runs"] if run[0] == "timer_fn"]
    assert run[2:4] == ["default/obj", "waiting"]
    assert run[6] == 3
    assert 0 < run[5] / 1000 - simulation.wall_clock.timestamp() <= 60
    await simulation.delete("kopfexamples", "obj")
    await simulation.settle()
    assert not any(run[0] == "daemon_fn" for run in console.read_panel("background")["runs"])


SECRET = "c3dvcmRmaXNo"


async def test_nothing_of_secrets_is_kept(simulation: Simulation, console: Console) -> None:
    @kopf.on.create("secrets")
    @kopf.on.update("secrets")
    async def secret_fn(body: kopf.Body, logger: kopf.Logger, patch: kopf.Patch, **_: Any) -> dict[str, str]:
        logger.warning("The data: %s", body["data"])
        kopf.info(body, reason="Seen", message=str(body["data"]))
        patch["stringData"] = {"copy": SECRET}
        if "labels" not in body.metadata:
            raise kopf.TemporaryError(f"it is {body['data']}", delay=1)
        return {"copy": SECRET}

    @kopf.index("secrets")
    def by_data(body: kopf.Body, **_: Any) -> dict[str, str]:
        return {body["data"]["password"]: SECRET}

    @kopf.timer("secrets", interval=10)
    async def timer_fn(**_: Any) -> None:
        raise ValueError(SECRET)

    await begin(simulation)
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "obj"}, "data": {"password": SECRET}}
    await apply(simulation, manifest, seconds=5)
    await simulation.patch("secrets", "obj", {"metadata": {"labels": {"a": "b"}}, "data": {"other": SECRET}})
    await simulation.advance(seconds=20)
    assert not console.history.backlog._notes  # facts refer to the objects, so they do not wait for long
    kept = read_all(console)
    assert SECRET not in kept
    assert "password" not in kept
    assert "withheld" in kept
    assert {"seen", "look", "attempt", "patch", "log", "event"} <= {sort for sort, _ in read(console)}
    index = console.read_panel("indices")
    assert (index[0]["name"], index[0]["keys"], index[0]["examples"]) == ("by_data", 1, [])


async def test_credentials_are_not_kept(simulation: Simulation, console: Console) -> None:
    await begin(simulation)
    assert simulation._birth is not None
    assert simulation._birth.token not in read_all(console)
    assert any("succeeded" in entry[4] for entry in read_entries(console, id=0))


async def test_indices(simulation: Simulation, console: Console) -> None:
    @kopf.index("kopfexamples")
    def by_size(spec: kopf.Spec, name: str, **_: Any) -> Any:
        return {spec["size"]: name}

    await begin(simulation, *[make(f"obj-{number}", size=number % 2) for number in range(4)])
    assert console.read_panel("indices") == [
        {"name": "by_size", "keys": 2, "values": 4, "examples": [["0", 2], ["1", 2]], "withheld": False},
    ]


async def test_queues_and_interruptions(simulation: Simulation, console: Console) -> None:
    kopf.on.create("kopfexamples", id="create_fn")(do_nothing)

    await begin(simulation, make("obj"))
    simulation.faults.drop_watch()
    await simulation.advance(seconds=30)
    panel = console.read_panel("queues")
    [queue] = [item for item in panel["queues"] if item["resource"].startswith("kopfexamples")]
    assert queue["watched"]
    assert (queue["waiting"], queue["unfinished"]) == (0, 0)
    assert queue["done"] >= 1
    assert queue["events"] >= 2
    assert queue["lag"] is not None
    assert queue["interruptions"] >= 1
    assert queue["interruption"]
    [(since, seen)] = [(since, seen) for path, since, seen in panel["streams"] if path.endswith("/kopfexamples")]
    assert since <= seen <= simulation.wall_clock.timestamp() * 1000
    assert panel["repeated"] == 0


PEERING_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Cluster",
        "names": {"plural": "clusterkopfpeerings", "singular": "clusterkopfpeering", "kind": "ClusterKopfPeering"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_peers(simulation: Simulation, console: Console) -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.clusterwide = True

    seen = simulation.wall_clock.isoformat()
    status = {HOSTILE: {"priority": 100, "lastseen": seen, "lifetime": 600}, "broken": "?"}
    await simulation.apply(PEERING_CRD)
    peering = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
    await apply(simulation, {**peering, "status": status})
    await simulation.restart()
    await simulation.advance(seconds=30)
    panel = console.read_panel("peers")
    assert any(HOSTILE in reason for reason in panel["pause"])
    [place] = panel["peerings"]
    peers = {peer["identity"]: peer for peer in place["peers"]}
    assert (peers[HOSTILE]["priority"], peers[HOSTILE]["own"]) == (100, False)
    assert peers["broken"]["problem"]
    assert any(peer.get("own") for peer in peers.values())
    await simulation.advance(minutes=30)
    panel = console.read_panel("peers")
    assert panel["pause"] == []


async def test_huge_hostile_objects(simulation: Simulation, console: Console) -> None:
    @kopf.on.update("kopfexamples", id="update_fn")
    async def update_fn(spec: kopf.Spec, patch: kopf.Patch, logger: kopf.Logger, **_: Any) -> None:
        patch.status["copy"] = spec
        logger.info("%s", spec)

    await begin(simulation)
    fields = {f"{HOSTILE}-{number}": "\u2028</script>" * 1000 for number in range(20)}
    await apply(simulation, make("obj", **fields))
    await simulation.patch("kopfexamples", "obj", {"spec": {f"{HOSTILE}-{number}": None for number in range(19)}})
    await simulation.settle()
    assert find(console).size < 50_000
    assert any(HOSTILE in line for line in read_all(console).splitlines())
