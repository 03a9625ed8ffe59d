"""
Besieging: the replicas of one operator are killed, frozen, cut off, and scaled, while the objects change all the time.

They are processes as users run them, each with a link of its own to the cluster. In the end, their journal is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import pathlib
import random
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from kopf.testing import LocalCluster
from tests.replicas.cluster import Cluster
from tests.replicas.journal import (
    Disturbance,
    collect_calls,
    find_doubles,
    find_falling_tokens,
    find_gaps,
    find_overlaps,
    read_journal,
)
from tests.replicas.links import Link, write_kubeconfig

_NO_NETWORK = re.compile(r"\[CRITICAL\] The operator cannot go on: the cluster is unreachable: ")
"""The exit of a replica that is started while its network is cut: its pod would be restarted."""

HERE = pathlib.Path(__file__).parent
GROUP, PLURAL = "replicas.example.com", "samples"
LOOPS = {"uvloop": "import uvloop; ", "asyncio": "import sys; sys.modules['uvloop'] = None; "}
"""How the command line finds the event loop: with a library, or without it."""
RUN = "from kopf.cli import main; main()"
SPARE = 5.0
"""How much longer than a lease an object can have no owner after a crash, in seconds."""
SETTLING = 120.0
"""How long it can take to handle the rest after the siege, in seconds."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do for how long."""

    duration: float
    objects: int
    replicas: int
    """How many there are at most."""
    lease: int
    """For how long a lease is valid, in seconds."""
    pause: float
    """How much time there is from one disturbance to the next one on average, in seconds."""
    changes: float
    """How many objects are changed in a second."""
    seed: int
    mode: str = "shards"
    loop: str = "uvloop"
    spare: float = SPARE
    verbose: bool = False
    kubeconfig: pathlib.Path | None = None
    """Of the cluster to be besieged; a new local one by default."""


class Report:
    """What has happened, and what has gone wrong."""

    def __init__(self, plan: Plan) -> None:
        self._verbose = plan.verbose
        self._started = get_time()
        self.disturbances: list[Disturbance] = []
        self.changes = 0
        self.calls = 0
        self.failures: list[str] = []

    def disturb(self, replica: str, what: str) -> None:
        now = get_time()
        self.disturbances.append(Disturbance(now, replica, what))
        if self._verbose:
            sys.stdout.write(f"{now - self._started:8.1f}  {replica} is {what}\n")
            sys.stdout.flush()

    def count(self, what: str) -> int:
        return sum(item.what == what for item in self.disturbances)

    def describe(self) -> str:
        trouble = "".join(f"\n  {self.count(what):6} x {what}" for what in sorted({d.what for d in self.disturbances}))
        failures = "".join(f"\nFAILED: {failure}" for failure in self.failures[:50])
        return f"{self.changes:,} changes, {self.calls:,} calls{trouble}\n{len(self.failures)} failures{failures}"


def get_time() -> float:
    """The same clock as that of the journal, for all processes of the machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Replica:
    """One place for a replica: its name, its link, and the process that runs there now, if any."""

    def __init__(self, name: str, plan: Plan, folder: pathlib.Path, link: Link) -> None:
        self.name = name
        self.link = link
        self.is_busy = False
        """Whether something is being done to it."""
        self._plan = plan
        self._folder = folder
        self.log = folder / f"{name}.log"
        self._started = folder / f"{name}.started"
        self.process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        self._started.unlink(missing_ok=True)
        flag = {"shards": "--shards", "leader": "--leader-election"}[self._plan.mode]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                LOOPS[self._plan.loop] + RUN,
                "run",
                "--namespace=default",
                f"{flag}=besieged",
                str(HERE / "handlers.py"),
                env={
                    **os.environ,
                    "KUBECONFIG": str(self._folder / f"{self.name}.kubeconfig"),
                    "POD_NAME": self.name,
                    "POD_NAMESPACE": "default",
                    "REPLICAS_FOLDER": str(self._folder),
                    "REPLICAS_LEASE": str(self._plan.lease),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    async def end(self, number: signal.Signals) -> int:
        """End it by the signal. It must handle the signals by then: before that, Python does not stop gracefully."""
        assert self.process is not None
        while number is signal.SIGTERM and self.is_running and not self._started.exists():
            await asyncio.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await self.process.wait()


class Objects:
    """The objects as they should be, and their changes."""

    def __init__(self, cluster: Cluster, plan: Plan, report: Report) -> None:
        self._cluster = cluster
        self._plan = plan
        self._report = report
        self._random = random.Random(plan.seed)
        self._numbers = itertools.count(1)
        self.values: dict[str, int] = {}

    def create(self, count: int) -> None:
        for _ in range(count):
            number = next(self._numbers)
            labels = {"daemonic": str(number % 10 == 0).lower(), "ticking": str(number % 10 == 5).lower()}
            self._apply(f"sample-{number}", {"labels": labels})

    async def churn(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(self._plan.changes))
            if len(self.values) < self._plan.objects:
                self.create(1)
            elif self._random.random() < 0.05:
                name = self._random.choice(sorted(self.values))
                del self.values[name]
                self._cluster.delete(name)
            else:
                self._apply(self._random.choice(sorted(self.values)), {})
            self._report.changes += 1

    def _get_manifest(self, name: str, value: int, metadata: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Sample",
            "spec": {"value": value, "steps": self._random.choice([0, 0, 1, 5])},
            "metadata": {"name": name, "namespace": "default", **metadata},
        }

    def _apply(self, name: str, metadata: dict[str, Any]) -> None:
        value = self.values[name] = self._random.randrange(10**9)
        self._cluster.apply(self._get_manifest(name, value, metadata))

    def list_unhandled(self) -> list[str]:
        found = {item["metadata"]["name"]: item for item in self._cluster.list()}
        wrong = [f"{name} is not deleted" for name in sorted({*found} - {*self.values})]
        for name, value in self.values.items():
            seen = found.get(name, {}).get("status", {}).get("seen")
            if seen != value:
                wrong.append(f"{name} is not handled: {value} is expected, {seen} is seen")
        return wrong


class Siege:
    """What happens to the replicas: one thing after another, several of them at once at times."""

    def __init__(self, replicas: list[Replica], plan: Plan, report: Report) -> None:
        self._replicas = replicas
        self._plan = plan
        self._report = report
        self._random = random.Random(plan.seed + 1)
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        actions = [self._kill, self._freeze, self._silence, self._cut, self._scale, self._blink]
        try:
            while True:
                await asyncio.sleep(self._random.expovariate(1 / self._plan.pause))
                free = [item for item in self._replicas if not item.is_busy]
                if free:
                    action, replica = self._random.choice(actions), self._random.choice(free)
                    task = asyncio.create_task(self._do(action, replica))
                    self._under_way.add(task)
                    task.add_done_callback(self._under_way.discard)
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _do(self, action: Callable[[Replica], Awaitable[None]], replica: Replica) -> None:
        replica.is_busy = True
        try:
            if replica.is_running:
                await action(replica)
            else:
                await replica.start()
                self._report.disturb(replica.name, "started")
        finally:
            await self.restore(replica)
            replica.is_busy = False

    async def restore(self, replica: Replica) -> None:
        replica.link.heal()
        if replica.is_running and replica.process is not None:
            replica.process.send_signal(signal.SIGCONT)

    async def _kill(self, replica: Replica) -> None:
        self._report.disturb(replica.name, "killed")
        await replica.end(signal.SIGKILL)
        await asyncio.sleep(self._random.uniform(0, 2) * self._plan.lease)
        await replica.start()
        self._report.disturb(replica.name, "started")

    async def _freeze(self, replica: Replica) -> None:
        assert replica.process is not None
        self._report.disturb(replica.name, "frozen")
        replica.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.1, 2.5) * self._plan.lease)
        self._report.disturb(replica.name, "thawed")

    async def _silence(self, replica: Replica) -> None:
        self._report.disturb(replica.name, "silenced")
        replica.link.silence()
        await asyncio.sleep(self._random.uniform(0.1, 2.5) * self._plan.lease)
        self._report.disturb(replica.name, "heard again")

    async def _cut(self, replica: Replica) -> None:
        self._report.disturb(replica.name, "cut off")
        replica.link.cut()
        await asyncio.sleep(self._random.uniform(0.1, 2.5) * self._plan.lease)
        self._report.disturb(replica.name, "connected again")

    async def _blink(self, replica: Replica) -> None:
        """Only the connections break."""
        self._report.disturb(replica.name, "reconnected")
        replica.link.cut()

    async def _scale(self, replica: Replica) -> None:
        self._report.disturb(replica.name, "stopped")
        code = await replica.end(signal.SIGTERM)
        self._report.disturb(replica.name, "gone")
        if code:
            self._report.failures.append(f"the exit code of {replica.name} is {code}")


@contextlib.asynccontextmanager
async def _making_replicas(cluster: Cluster, plan: Plan, folder: pathlib.Path) -> AsyncIterator[list[Replica]]:
    replicas = []
    async with contextlib.AsyncExitStack() as stack:
        for number in range(plan.replicas):
            link = Link(*cluster.address)
            await stack.enter_async_context(link.serving())
            replica = Replica(f"besieged-{number}", plan, folder, link)
            write_kubeconfig(cluster.kubeconfig, folder / f"{replica.name}.kubeconfig", link.port)
            replicas.append(replica)
        try:
            yield replicas
        finally:
            for replica in replicas:
                if replica.is_running:
                    await replica.end(signal.SIGKILL)


@contextlib.contextmanager
def _providing_cluster(plan: Plan) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        kubeconfig = plan.kubeconfig or stack.enter_context(LocalCluster(seed=plan.seed)).kubeconfig
        yield stack.enter_context(Cluster(kubeconfig, HERE / "crd.yaml", GROUP, PLURAL))


async def besiege(plan: Plan, folder: pathlib.Path) -> Report:
    """Do all of that; the folder is for the logs and the journal."""
    report = Report(plan)
    with _providing_cluster(plan) as cluster:
        objects = Objects(cluster, plan, report)
        async with _making_replicas(cluster, plan, folder) as replicas:
            await asyncio.to_thread(objects.create, plan.objects)
            for replica in replicas:
                await replica.start()
                report.disturb(replica.name, "started")
            siege = Siege(replicas, plan, report)
            await _wait_until_handled(objects, report, "at the start")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(plan.duration), asyncio.TaskGroup() as group:
                    group.create_task(objects.churn())
                    group.create_task(siege.run())
            if not any(replica.is_running for replica in replicas):
                await replicas[0].start()
                report.disturb(replicas[0].name, "started")
            await _wait_until_handled(objects, report, "at the end")
            for replica in replicas:
                if replica.is_running:
                    report.disturb(replica.name, "stopped")
                    if code := await replica.end(signal.SIGTERM):
                        report.failures.append(f"the exit code of {replica.name} is {code}")
        judge(folder / "journal", plan, report)
        _check_logs(replicas, report)
    return report


async def _wait_until_handled(objects: Objects, report: Report, when: str) -> None:
    deadline = get_time() + SETTLING
    while wrong := await asyncio.to_thread(objects.list_unhandled):
        if get_time() > deadline:
            report.failures.extend(f"{when}: {item}" for item in wrong)
            return
        await asyncio.sleep(1)


def judge(journal: pathlib.Path, plan: Plan, report: Report) -> None:
    """See what the journal proves."""
    calls = collect_calls(read_journal(journal))
    report.calls = len(calls)
    report.failures += find_overlaps(calls)
    report.failures += find_falling_tokens(calls)
    report.failures += find_gaps(calls, report.disturbances, limit=plan.lease + plan.spare)
    report.failures += find_doubles(calls, report.disturbances, margin=2 * plan.lease)


def _check_logs(replicas: list[Replica], report: Report) -> None:
    for replica in replicas:
        text = _NO_NETWORK.sub("", replica.log.read_text())
        for sign in ("Traceback", "bug of the framework", "CRITICAL"):
            if sign in text:
                report.failures.append(f"{sign!r} is in the log {replica.log}")
