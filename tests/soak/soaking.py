"""
Soaking: two operators live with everything that happens to operators, and in the end, nothing is lost or leaked.

The objects are created, changed, deleted all the time. Meanwhile, the tokens expire, the watch-streams break or fall
silent, the API fails at times, and is restarted. The senior operator (of the higher priority) is stopped or killed,
and comes back; in between, the junior one takes over. It lives for the whole time: its memory and files are observed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import psutil

from kopf.testing import LocalCluster

T = TypeVar("T")

HERE = pathlib.Path(__file__).parent
PEERING = HERE.parent.parent / "examples" / "peering"
PATH = "/apis/soak.example.com/v1/namespaces/default/samples"
LOOPS = {"uvloop": "import uvloop; ", "asyncio": "import sys; sys.modules['uvloop'] = None; "}
"""How the command line finds the event loop: with a library, or without it."""
RUN = "from kopf.cli import main; main()"
SETTLING = 90.0
"""How long the operators can take to handle one more of the objects after the trouble ends: the longest backoffs, in
seconds."""
SPARE_FILES = 60
"""How many more open files there can be at the end: as many objects are handled at once as there are workers (50), with
a connection for each of them, which is kept for the next ones."""
SPARE_MEMORY, SPARE_MEMORY_IF_SHORT = 2.0, 4.0
"""How much more memory (MiB) there can be in the last quarter than in the second one. Short runs only warm up."""
WARMING = 2700.0
"""Which runs are not short, in seconds: a quarter of that is enough to fill nearly everything that is limited, e.g. the
memory of the latest events."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do for how long."""

    duration: float
    """In seconds, without settling."""
    objects: int
    """How many objects exist at a time."""
    pace: float
    """How many times slower everything happens than it does at 1, which gives the operators time for everything."""
    seed: int
    loop: str = "uvloop"
    """Which event loop the operators have: it, or ``asyncio``."""
    verbose: bool = False
    """Whether to print the trouble as it happens."""
    changes: int = 0
    """How many changes there are at least, however long they take."""
    trouble: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """What has to happen how many times at least, however long it takes."""


class Report:
    """What has happened, and what has gone wrong."""

    def __init__(self, plan: Plan) -> None:
        self._verbose = plan.verbose
        self._started = time.monotonic()
        self._happened: list[str] = []
        self.changes = 0
        self.memory: list[float] = []
        """In MiB, by the operator that lives for the whole time; over the whole time."""
        self.files: list[int] = []
        self.failures: list[str] = []

    def happen(self, what: str) -> None:
        self._happened.append(what)
        if self._verbose:
            sys.stdout.write(f"{time.monotonic() - self._started:8.1f}  {what}\n")

    def count(self, what: str) -> int:
        return self._happened.count(what)

    def is_enough(self, plan: Plan) -> bool:
        """Whether it was not a quiet time."""
        return self.changes >= plan.changes and all(self.count(what) >= times for what, times in plan.trouble.items())

    def describe(self) -> str:
        trouble = "".join(f"\n  {self.count(what):6} x {what}" for what in sorted(set(self._happened)))
        memory = ", ".join(f"{min(part):.1f}" for part in split(self.memory, 20))
        quarters = ", ".join(f"{min(part):.1f}" for part in split(self.memory, 4))
        files = ", ".join(str(max(part)) for part in split(self.files, 20))
        failures = "".join(f"\nFAILED: {failure}" for failure in self.failures)
        memory += f" (of the quarters: {quarters}; the last one is compared to the second one)"
        return f"{self.changes:,} changes; memory, MiB: {memory}; open files: {files}{trouble}{failures}"


def split(samples: Sequence[T], count: int) -> list[Sequence[T]]:
    """Divide the samples into so many parts of about the same size; none of them is empty."""
    bounds = [len(samples) * number // count for number in range(count + 1)]
    return [samples[start:end] for start, end in itertools.pairwise(bounds) if start < end]


class Operators:
    """The junior operator, which lives for the whole time, and the senior one, which comes and goes."""

    def __init__(self, kubeconfig: pathlib.Path, plan: Plan, folder: pathlib.Path) -> None:
        self._kubeconfig = kubeconfig
        self._plan = plan
        self._folder = folder
        self.log = folder / "operators.log"
        self._is_leaving = False
        self.junior: asyncio.subprocess.Process
        self.senior: asyncio.subprocess.Process

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.junior = await self._spawn(10)
        self.senior = await self._spawn(20)
        try:
            for process in (self.junior, self.senior):
                await self._wait_until_started(process)
            yield
        finally:
            for process in (self.junior, self.senior):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def end_senior(self, number: signal.Signals) -> None:
        """Let the senior operator go, by stopping or killing it."""
        self._is_leaving = True
        self.senior.send_signal(number)
        await self.senior.wait()

    async def restore_senior(self) -> None:
        """Let the senior operator come back, if it is going or gone."""
        if self._is_leaving:
            await self.senior.wait()
            self.senior = await self._spawn(20)
            self._is_leaving = False
        await self._wait_until_started(self.senior)

    async def _spawn(self, priority: int) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                LOOPS[self._plan.loop] + RUN,
                "run",
                "--all-namespaces",
                "--peering=default",
                f"--priority={priority}",
                str(HERE / "handlers.py"),
                env={
                    **os.environ,
                    "KUBECONFIG": str(self._kubeconfig),
                    "SOAK_PACE": str(self._plan.pace),
                    "PYTHONPATH": str(HERE.parent.parent),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    async def _wait_until_started(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the operator handles the signals: before that, Python does not do it gracefully."""
        while process.returncode is None and not (self._folder / f"{process.pid}.started").exists():
            await asyncio.sleep(0.05)

    async def stop_gracefully(self) -> list[int]:
        for process in (self.senior, self.junior):
            process.terminate()
        return [await process.wait() for process in (self.senior, self.junior)]


class Objects:
    """The objects as they should be, and their changes."""

    def __init__(self, cluster: LocalCluster, session: aiohttp.ClientSession, plan: Plan, report: Report) -> None:
        self._cluster = cluster
        self._session = session
        self._plan = plan
        self._report = report
        self._random = random.Random(plan.seed)
        self._number = 0
        self.values: dict[str, int] = {}

    async def churn(self) -> None:
        while True:
            change = asyncio.ensure_future(self._change())
            try:
                await asyncio.shield(change)
            finally:
                await change  # it is as it should be only if the cluster knows of it
            self._report.changes += 1
            await asyncio.sleep(self._random.uniform(0, 0.2) * min(self._plan.pace, 1))  # the long runs are not idle

    async def _change(self) -> None:
        if len(self.values) < self._plan.objects:
            self._number += 1
            labels = {name: str(self._random.random() < 0.5).lower() for name in ("ticking", "daemonic", "threaded")}
            if self._number % 10:  # every one has its thread
                labels["threaded"] = "false"
            await self._apply(f"sample-{self._number}", {"labels": labels})
        elif self._random.random() < 0.2:
            name = self._random.choice(sorted(self.values))
            del self.values[name]
            await self.request("DELETE", f"{PATH}/{name}")
        else:
            await self._apply(self._random.choice(sorted(self.values)), {})

    async def _apply(self, name: str, metadata: dict[str, Any]) -> None:
        value = self.values[name] = self._random.randrange(10**9)
        manifest = {
            "apiVersion": "soak.example.com/v1",
            "kind": "Sample",
            "spec": {"value": value},
            "metadata": {"name": name, "namespace": "default", **metadata},
        }
        self._cluster.apply(manifest)

    async def request(self, method: str, path: str) -> Any:
        """Ask the API until it answers: the trouble is not for us."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                url, headers = self._cluster.url + path, {"Authorization": f"Bearer {self._cluster.token}"}
                async with self._session.request(method, url, headers=headers, ssl=False) as response:
                    if response.status < 300 or response.status == 404:
                        return await response.json()
            await asyncio.sleep(0.1)

    async def list_unhandled(self) -> list[str]:
        """Tell what is not as it should be."""
        found = {item["metadata"]["name"]: item for item in (await self.request("GET", PATH))["items"]}
        wrong = [f"{name} is not deleted: {found[name]['metadata']}" for name in sorted({*found} - {*self.values})]
        for name, value in self.values.items():
            if name not in found or found[name]["spec"]["value"] != value:
                wrong.append(f"{name} is lost by the cluster: {value} was applied, and there is {found.get(name)}")
                continue
            seen = found[name].get("status", {}).get("seen")
            if seen != value:
                wrong.append(f"{name} is not handled: {value} is expected, {seen} is seen")
            annotations = found[name]["metadata"].get("annotations", {})
            if progress := [key for key in annotations if not key.endswith("-configuration")]:
                wrong.append(f"{name} is still being handled: {progress}")
        return wrong


class Trouble:
    """What happens to the operators."""

    def __init__(self, cluster: LocalCluster, operators: Operators, plan: Plan, report: Report) -> None:
        self._cluster = cluster
        self._operators = operators
        self._pace = plan.pace
        self._report = report

    def list_all(self) -> list[Awaitable[None]]:
        return [
            self._repeat(3, "the token has expired", self._expire_token),
            self._repeat(7, "the API is restarted", self._restart),
            self._repeat(5, "the watch-streams are silent", self._silence),
            self._repeat(2, "the watch-streams are broken", self._cut),
            self._repeat(4, "the history is compacted", self._compact),
            self._take_over(),
        ]

    async def _repeat(self, interval: float, what: str, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval * self._pace)
            self._report.happen(what)
            await action()

    async def _expire_token(self) -> None:
        self._cluster.faults.expire_token()

    async def _restart(self) -> None:
        await asyncio.to_thread(self._cluster.restart)

    async def _silence(self) -> None:
        self._cluster.faults.silence_watches()
        try:
            await asyncio.sleep(4 * self._pace)
        finally:
            self._cluster.faults.silence_watches(False)

    async def _cut(self) -> None:
        self._cluster.faults.cut_watches()

    async def _compact(self) -> None:
        self._cluster.faults.compact()

    async def _take_over(self) -> None:
        """Let the senior operator go, with goodbyes and without, and come back."""
        while True:
            for what, number in (("stopped", signal.SIGTERM), ("killed", signal.SIGKILL)):
                await asyncio.sleep(4 * self._pace)
                self._report.happen(f"the senior operator is {what}")
                await self._operators.end_senior(number)
                await asyncio.sleep(2 * self._pace)
                await self._operators.restore_senior()


async def soak(plan: Plan, folder: pathlib.Path) -> Report:
    """Do all of that; the folder is for the logs."""
    report = Report(plan)
    with LocalCluster(seed=plan.seed) as cluster:
        for path in (HERE / "crd.yaml", PEERING / "crds.yaml", PEERING / "default.yaml"):
            cluster.apply(path)
        operators = Operators(cluster.kubeconfig, plan, folder)
        async with aiohttp.ClientSession() as session, operators.running():
            objects = Objects(cluster, session, plan, report)
            trouble = Trouble(cluster, operators, plan, report)
            coros = [objects.churn(), _observe(operators, report), *trouble.list_all()]
            await _run(plan, report, coros, cluster)
            await operators.restore_senior()
            await _settle(objects, report)
            if codes := [code for code in await operators.stop_gracefully() if code]:
                report.failures.append(f"the exit codes of the operators are {codes}")
    _check_log(operators.log, report)
    check_growth(report, spare_memory=SPARE_MEMORY if plan.duration >= WARMING else SPARE_MEMORY_IF_SHORT)
    return report


async def _run(plan: Plan, report: Report, coros: list[Awaitable[None]], cluster: LocalCluster) -> None:
    cluster.faults.inject(500, rate=0.01)
    cluster.faults.inject(429, rate=0.01, retry_after=1)
    tasks = [asyncio.ensure_future(coro) for coro in coros]
    try:
        done, _ = await asyncio.wait(tasks, timeout=plan.duration, return_when=asyncio.FIRST_COMPLETED)
        while not done and not report.is_enough(plan):
            done, _ = await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cluster.faults.clear()


async def _observe(operators: Operators, report: Report) -> None:
    process = psutil.Process(operators.junior.pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        while True:
            await asyncio.sleep(0.5)
            report.memory.append(process.memory_info().rss / 2**20)
            report.files.append(process.num_fds())
    report.failures.append(f"the junior operator has exited with {await operators.junior.wait()}")


async def _settle(objects: Objects, report: Report) -> None:
    """It can take long on a busy machine; but something has to be done all the time."""
    deadline, least = time.monotonic() + SETTLING, math.inf
    while wrong := await objects.list_unhandled():
        if len(wrong) < least:
            deadline, least = time.monotonic() + SETTLING, len(wrong)
        if time.monotonic() > deadline:
            report.failures.extend(wrong)
            return
        await asyncio.sleep(0.5)


def _check_log(path: pathlib.Path, report: Report) -> None:
    lines = path.read_text().splitlines()
    for index, line in enumerate(lines):
        if line.startswith("Traceback") or "exception was never retrieved" in line:
            excerpt = "\n".join(lines[max(0, index - 3) : index + 30])
            report.failures.append(f"there is a traceback in the logs:\n{excerpt}")
            return


def check_growth(report: Report, *, spare_memory: float) -> None:
    """
    Compare the last quarter with the second one: by then, everything that is ever needed was needed.

    The first quarter warms up, and is not judged. Of the memory, the least counts: the bursts of work need more for a
    moment. It is the memory as the system sees it, so neither garbage nor what the allocator keeps for itself may pile
    up.
    """
    _, before, _, after = (min(part) for part in split(report.memory, 4))
    if after > before + spare_memory:
        report.failures.append(f"the memory has grown from {before:.1f} to {after:.1f} MiB")
    _, most_before, _, most_after = (max(part) for part in split(report.files, 4))
    if most_after > most_before + SPARE_FILES:
        report.failures.append(f"the number of open files has grown from {most_before} to {most_after}")
