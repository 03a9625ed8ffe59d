"""
Kills & chaos: the operator is killed, or the API fails, at any moment; all is handled, what is done is not repeated.

Most of the kills are simulated, at moments that are the same in every run. Some are those of real processes, by a real
signal: with threads that are not asked, and with connections that only the kernel closes. What exactly is going on at
those moments, and at those of the failures, differs from run to run, though the random decisions are seeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation
from kopf_cluster import LocalCluster
from tests.behaviour import killable
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, Obj, Refused, get_progress, is_handled
from tests.behaviour.running import Logs, Operator
from tests.patience import PATIENCE

KILLS = int(os.environ.get("KOPF_TEST_KILLS", "60"))
PROCESSES = max(6, KILLS // 10)
OBJECTS = max(50, KILLS // 2)
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"

Pair = tuple[str, str]
Step = tuple[int, Pair, str]
"""What was done: in which life, by which handler for which object, and if it began or ended."""


class Victim:
    """Operators in processes of their own, one life after another, with a common journal."""

    def __init__(self, process: subprocess.Popen[bytes], journal: pathlib.Path, errors: pathlib.Path) -> None:
        self.process = process
        self.journal = journal
        self.errors = errors
        self.pid: int | None = None

    def revive(self, life: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"%d\n" % life)
        self.process.stdin.flush()
        self.pid = int(self.process.stdout.readline())

    def kill(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = None

    def read(self) -> list[Step]:
        """What was done so far."""
        lines = (line.split() for line in self.journal.read_text().splitlines())
        return [(int(life), (name, handler), event) for life, name, handler, event in lines]

    async def wait_for_news(self) -> None:
        """Wait until something is done."""
        seen = self.journal.stat().st_size
        async with asyncio.timeout(PATIENCE):
            while self.journal.stat().st_size == seen:
                assert self.process.poll() is None
                await asyncio.sleep(0.001)


@pytest.fixture
def victim(cluster: LocalCluster, tmp_path: pathlib.Path) -> Iterator[Victim]:
    journal, errors = tmp_path / "journal", tmp_path / "errors"
    journal.touch()
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, killable.__file__, str(journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        ) as process,
    ):
        try:
            yield Victim(process, journal, errors)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


async def list_objects(api: API) -> list[Obj]:
    return list((await api.request("GET", PATH))["items"])


def list_recorded(objects: list[Obj]) -> set[Pair]:
    """The handlers that are known to have succeeded, by what is stored on the objects."""
    return {
        (obj["metadata"]["name"], handler)
        for obj in objects
        for handler in killable.HANDLERS
        if is_handled(obj) or get_progress(obj).get(handler, {}).get("success")
    }


def make_some(made: int, life: int, kills: int) -> list[Obj]:
    """
    Make the objects that come in this life.

    They come little by little, so that there is always something in the beginning, the middle, and the end.
    """
    return [
        {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": f"obj{n}"}, "spec": {"field": n}}
        for n in range(made, min(OBJECTS, OBJECTS * (life + 10) // kills))
    ]


@pytest.mark.timeout(300 + KILLS)
@pytest.mark.simulation(
    crds=make_crd("KopfExample", "kopfexamples", status=False),
    settings=killable.make_settings,
    operator=False,
)
async def test_killed_at_any_moment(simulation: Simulation) -> None:
    dice = random.Random(20261121)
    journal: list[Step] = []
    recorded: list[set[Pair]] = []  # as of the end of each life
    killable.declare(lambda event, name, handler: journal.append((len(recorded), (name, handler), event)))
    made = 0
    for life in range(KILLS):
        for obj in make_some(made, life, KILLS):
            await simulation.apply(obj)
            made += 1
        await simulation.restart()
        await simulation.advance(seconds=dice.uniform(0, 0.06))
        if dice.random() < 0.5 and not all(map(is_handled, await simulation.list("kopfexamples"))):
            simulation.crash_after(write=1, before=dice.random() < 0.5)
            await simulation.until(lambda: not simulation.is_running)
        await simulation.crash()
        recorded.append(list_recorded(await simulation.list("kopfexamples")))
    await simulation.restart()
    await simulation.settle()
    check(journal, recorded, await simulation.list("kopfexamples"))
    assert not [line for line in simulation.logs if line.error]


@pytest.mark.timeout(300 + 2 * PROCESSES)
async def test_processes_are_killed_at_any_moment(api: API, victim: Victim) -> None:
    dice = random.Random(20261121)
    recorded: list[set[Pair]] = []  # as of the end of each life
    made = 0
    for life in range(PROCESSES):
        for obj in make_some(made, life, PROCESSES):
            await api.request("POST", PATH, obj)
            made += 1
        victim.revive(life)
        if dice.random() < 0.9:
            await victim.wait_for_news()
        await asyncio.sleep(dice.uniform(0, 0.03))
        victim.kill()
        recorded.append(list_recorded(await list_objects(api)))
    victim.revive(PROCESSES)
    async with asyncio.timeout(PATIENCE):
        while not all(map(is_handled, await list_objects(api))):
            await asyncio.sleep(0.05)
    check(victim.read(), recorded, await list_objects(api))
    assert "Traceback" not in victim.errors.read_text()


def check(journal: list[Step], recorded: list[set[Pair]], objects: list[Obj]) -> None:
    kills = len(recorded)
    assert len(objects) == OBJECTS
    assert all(is_handled(obj) and obj["status"].keys() == set(killable.HANDLERS) for obj in objects)
    begun = Counter((life, pair) for life, pair, event in journal if event == "begin")
    ended = Counter((life, pair) for life, pair, event in journal if event == "end")
    assert {pair for _, pair in ended} == {(f"obj{i}", id) for i in range(OBJECTS) for id in killable.HANDLERS}
    # No life does anything twice; and no life does anything that is known to be done in one of the previous lives.
    assert set(begun.values()) == {1}
    for life, pair in begun:
        assert life == 0 or pair not in recorded[life - 1], f"{pair} ran again in the life {life}"
    # So, what ran several times, was in flight at a kill: begun, but not known to be done.
    in_flight = Counter(pair for life, pair in begun if life < kills and pair not in recorded[life])
    runs = Counter(pair for _, pair in begun)
    assert all(runs[pair] <= 1 + in_flight[pair] for pair in runs)
    # And it was a challenge indeed: many of the kills came in the middle of something, even when the machine is busy.
    assert len({life for life, pair in begun if life < kills and pair not in recorded[life]}) >= kills / 4


OBJECTS_OF_FAILING_API = int(os.environ.get("KOPF_TEST_FAILURES", "300"))


@pytest.mark.usefixtures("by_network")
@pytest.mark.timeout(300)
async def test_a_failing_api(api: API, operator: Operator, logs: Logs) -> None:
    count = OBJECTS_OF_FAILING_API
    calls: Counter[Pair] = Counter()
    done = asyncio.Event()

    for id in ("first", "second"):

        @kopf.on.create("kopf.dev", "kopfexamples", id=id, param=id)
        async def fn(name: str, param: str, **_: Any) -> str:
            calls[name, param] += 1
            if len(calls) == 2 * count:
                done.set()
            return param

    operator.set("networking.error_backoffs", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1, 1])
    logging.getLogger("kopf").setLevel(logging.INFO)
    await operator.start()
    operator.cluster.faults.inject(500, rate=0.01)
    operator.cluster.faults.inject(429, rate=0.01, retry_after=1)
    operator.cluster.faults.drop_watches_every(2)
    started = asyncio.get_running_loop().time()

    names = iter(range(count))
    await asyncio.gather(*(create_all(api, names) for _ in range(50)))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
        while not all(is_handled(obj) for obj in await try_to_list(api)):
            await asyncio.sleep(0.1)
    objects = await try_to_list(api)
    assert len(objects) == count
    assert all(obj["status"] == {"first": "first", "second": "second"} for obj in objects)
    assert set(calls.values()) == {1}
    assert not [record for record in logs.records if record.exc_info]
    assert not logs.get_messages(level=logging.ERROR)
    assert asyncio.get_running_loop().time() - started < 90


async def create_all(api: API, names: Iterator[int]) -> None:
    """Create objects as long as there are names for them, in spite of everything."""
    for number in names:
        obj = {
            "apiVersion": "kopf.dev/v1",
            "kind": "KopfExample",
            "metadata": {"name": f"obj{number}"},
            "spec": {"field": number},
        }
        is_created = False
        while not is_created:
            with contextlib.suppress(Refused):
                await api.request("POST", PATH, obj)
                is_created = True


async def try_to_list(api: API) -> list[Obj]:
    while True:
        with contextlib.suppress(Refused):
            return await list_objects(api)
