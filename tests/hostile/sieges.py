"""
Sieges: a real operator with few descriptors, attackers at its ports, and honest clients who measure what they get.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import re
import resource
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import psutil

from kopf.testing import LocalCluster
from tests.admission.reviewing import make_review
from tests.behaviour.conftest import make_crd
from tests.cli.processes import Process
from tests.patience import get_starvation, wait_until
from tests.ports import find_free_port

logger = logging.getLogger(__name__)

FILES = 1024
"""How many files the operator may open."""

HALF_REQUEST = b"POST /check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
HALF_HEADER = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@dataclasses.dataclass
class Answers:
    """What the honest clients have said so far."""

    log: pathlib.Path

    @property
    def _lines(self) -> list[str]:
        return self.log.read_text().split("\n")[:-1]  # the last one is empty or incomplete

    @property
    def delays(self) -> list[float]:
        """How long they have waited for the answers, in seconds."""
        return [float(line) for line in self._lines if line[0].isdigit()]

    @property
    def problems(self) -> list[str]:
        """What they have got instead of answers."""
        return [line for line in self._lines if not line[0].isdigit()]

    def count_late(self, limit: float) -> int:
        """How many were answered later than in so many seconds, or not at all."""
        return len(self.problems) + sum(delay > limit for delay in self.delays)

    def __str__(self) -> str:
        ordered = sorted(self.delays)
        return (
            f"{len(ordered)} answers, median {ordered[len(ordered) // 2]:.3f}s, "
            f"99% {ordered[len(ordered) * 99 // 100]:.3f}s, max {ordered[-1]:.3f}s, problems: {self.problems[:5]}"
            if ordered
            else f"no answers, problems: {self.problems[:5]}"
        )


@dataclasses.dataclass
class Victim:
    """The running operator."""

    cluster: LocalCluster
    process: Process
    health_port: int
    webhook_port: int
    context: ssl.SSLContext

    @property
    def files(self) -> int:
        return psutil.Process(self.process.pid).num_fds()

    @property
    def memory(self) -> float:
        """In MB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    @property
    def lines(self) -> int:
        """Those that are not about what the honest clients want."""
        return sum("succeeded" not in line for line in self.process.output.splitlines())

    async def probe(self, session: aiohttp.ClientSession) -> None:
        async with session.get(f"http://127.0.0.1:{self.health_port}/healthz") as response:
            assert response.status == 200, await response.text()

    async def review(self, session: aiohttp.ClientSession) -> None:
        url = f"https://127.0.0.1:{self.webhook_port}/check"
        async with session.post(url, json=make_review(), ssl=self.context) as response:
            assert response.status == 200, await response.text()
            assert (await response.json())["response"]["allowed"] is True

    @property
    def starvation(self) -> float:
        """For how long it and the tests have waited for a processor, in seconds."""
        return get_starvation() + get_starvation(self.process.pid)

    def read_clock(self) -> float:
        """The time in seconds; it stands still while others have the processors."""
        return time.monotonic() - self.starvation

    async def handle(self, name: str) -> float:
        """Create an object, wait until it is handled; tell how long it took, in seconds, without those of others."""
        started = self.read_clock()
        self.cluster.apply(
            {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name, "namespace": "default"}}
        )
        await wait_until(lambda: f"[default/{name}] Handler 'create' succeeded" in self.process.output)
        return self.read_clock() - started


@contextlib.asynccontextmanager
async def living(folder: pathlib.Path, *, files: int = FILES) -> AsyncIterator[Victim]:
    """Run the operator in a local cluster."""
    async with LocalCluster() as cluster:
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        health_port, webhook_port = find_free_port(), find_free_port()
        env = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "WEBHOOK_PORT": str(webhook_port),
            "CADUMP": str(folder / "ca.pem"),
        }
        path = pathlib.Path(__file__).with_name("victim.py")
        with Process(
            "run",
            "--all-namespaces",
            "--standalone",
            f"--liveness=http://127.0.0.1:{health_port}/healthz",
            str(path),
            cwd=folder,
            log=folder / "log",
            env=env,
        ) as process:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
            await _wait_for(process, "The webhook server is listening")
            context = ssl.create_default_context(cafile=folder / "ca.pem")
            victim = Victim(cluster, process, health_port, webhook_port, context)
            await victim.handle("first")
            yield victim
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait)


@contextlib.contextmanager
def attacking(port: int, count: int, content: bytes = b"", *, processes: int = 1) -> Iterator[None]:
    """Attack the port as long as the block lasts."""
    attackers = [
        subprocess.Popen(
            [
                sys.executable,
                str(pathlib.Path(__file__).with_name("attackers.py")),
                str(port),
                str(count // processes),
                content.hex(),
            ],
            stdout=subprocess.PIPE,
        )
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for attacker in attackers:
            attacker.terminate()
        made = sum(int(attacker.communicate()[0]) for attacker in attackers)
        assert made > 0, "the attack has not happened"
        logger.info("attack on the port %s: %s connections with %r…", port, made, content[:4])


@contextlib.contextmanager
def measuring(url: str, log: pathlib.Path, *arguments: str, body: bytes = b"", pace: float) -> Iterator[Answers]:
    """Ask again and again: either over one ``kept`` connection, as API servers do, or over ``new`` ones."""
    path = pathlib.Path(__file__).with_name("clients.py")
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, str(path), url, str(pace), *arguments], stdin=subprocess.PIPE, stdout=output
        ) as client,
    ):
        assert client.stdin is not None
        client.stdin.write(body)
        client.stdin.close()
        try:
            yield Answers(log)
        finally:
            client.terminate()


async def _wait_for(process: Process, pattern: str) -> None:
    await asyncio.to_thread(process.wait_for, re.escape(pattern))


def get_size(name: str, default: float) -> float:
    return float(os.environ.get(f"KOPF_HOSTILE_{name}", default))
