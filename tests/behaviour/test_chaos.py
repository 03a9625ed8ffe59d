"""
Chaos: the operator is killed at any moment, the API fails at any moment; everything is handled, nothing twice.

The random decisions are seeded. What exactly is going on at those moments still differs from run to run.
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
from kopf_cluster import LocalCluster
from tests.behaviour import killable
from tests.behaviour.objects import API, Obj, Refused, get_progress, is_handled
from tests.behaviour.running import Logs, Operator

KILLS = int(os.environ.get("KOPF_TEST_KILLS", "100"))
OBJECTS = 50
OBJECTS_OF_FAILING_API = int(os.environ.get("KOPF_TEST_FAILURES", "1000"))
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"

Pair = tuple[str, str]


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

    def read(self) -> list[tuple[int, Pair, str]]:
        """What was done so far: in which life, by which handler for which object, and if it began or ended."""
        lines = (line.split() for line in self.journal.read_text().splitlines())
        return [(int(life), (name, handler), event) for life, name, handler, _, event in lines]

    async def wait_for_news(self) -> None:
        """Wait until something is done."""
        seen = self.journal.stat().st_size
        async with asyncio.timeout(20):
            while self.journal.stat().st_size == seen:
                assert self.process.poll() is None
                await asyncio.sleep(0.001)


@pytest.fixture
def victim(cluster: LocalCluster, tmp_path: pathlib.Path) -> Iterator[Victim]:
    journal, errors = tmp_path / "journal", tmp_path / "errors"
    journal.touch()
    with errors.open("wb") as stderr, subprocess.Popen(
            [sys.executable, killable.__file__, str(journal)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
    ) as process:
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
        for obj in objects for handler in killable.HANDLERS
        if is_handled(obj) or get_progress(obj).get(handler, {}).get("success")
    }


@pytest.mark.timeout(120 + 2 * KILLS)
async def test_killed_at_any_moment(api: API, victim: Victim) -> None:
    dice = random.Random(20261121)
    recorded: list[set[Pair]] = []  # as of the end of each life
    created = 0
    for life in range(KILLS):
        # They come little by little, so that there is always something in the beginning, the middle, and the end.
        while created < min(OBJECTS, OBJECTS * (life + 10) / KILLS):
            await api.request("POST", PATH, {"apiVersion": "kopf.dev/v1", "kind": "KopfExample",
                                             "metadata": {"name": f"obj{created}"}, "spec": {"field": created}})
            created += 1
        victim.revive(life)
        is_idle = life > 0 and len(recorded[-1]) == created * len(killable.HANDLERS)
        if not is_idle and dice.random() < 0.9:
            await victim.wait_for_news()
        await asyncio.sleep(dice.uniform(0, 0.03))
        victim.kill()
        recorded.append(list_recorded(await list_objects(api)))
    assert created == OBJECTS

    victim.revive(KILLS)
    async with asyncio.timeout(30):
        while not all(is_handled(obj) for obj in await list_objects(api)):
            await asyncio.sleep(0.05)
    check_journal(victim, recorded)
    for obj in await list_objects(api):
        assert obj["status"].keys() == set(killable.HANDLERS)
    assert "Traceback" not in victim.errors.read_text()


def check_journal(victim: Victim, recorded: list[set[Pair]]) -> None:
    journal = victim.read()
    begun = Counter((life, pair) for life, pair, event in journal if event == "begin")
    ended = Counter((life, pair) for life, pair, event in journal if event == "end")
    assert {pair for _, pair in ended} == {(f"obj{i}", id) for i in range(OBJECTS) for id in killable.HANDLERS}
    # No life does anything twice; and no life does anything that is known to be done in one of the previous lives.
    assert set(begun.values()) == {1}
    for life, pair in begun:
        assert life == 0 or pair not in recorded[life - 1], f"{pair} ran again in the life {life}"
    # So, what ran several times, was in flight at a kill: begun, but not known to be done.
    in_flight = Counter(pair for life, pair in begun if life < KILLS and pair not in recorded[life])
    runs = Counter(pair for _, pair in begun)
    assert all(runs[pair] <= 1 + in_flight[pair] for pair in runs)
    # And it was a challenge indeed: many of the kills came in the middle of something, even when the machine is busy.
    assert len({life for life, pair in begun if life < KILLS and pair not in recorded[life]}) >= KILLS / 4


@pytest.mark.timeout(180)
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
    async with asyncio.timeout(90):
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
        obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample",
               "metadata": {"name": f"obj{number}"}, "spec": {"field": number}}
        is_created = False
        while not is_created:
            with contextlib.suppress(Refused):
                await api.request("POST", PATH, obj)
                is_created = True


async def try_to_list(api: API) -> list[Obj]:
    while True:
        with contextlib.suppress(Refused):
            return await list_objects(api)
