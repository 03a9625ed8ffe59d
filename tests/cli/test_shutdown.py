"""Operators exit in the documented times, whatever they are busy with, and whatever hangs in them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from kopf.testing import LocalCluster
from tests.cli.processes import Process
from tests.patience import PATIENCE, get_starvation

RUNS = int(os.environ.get("KOPF_TEST_SHUTDOWNS", "2"))
"""More of them take more time than everyday tests should."""
AT_ONCE = 2
"""They wait for most of the time."""
LIMIT = 12.0
"""Seconds, as documented: 5 for the daemons, 2 + 2 for the handlers, 2 for the events, and something for Python."""
SPARE = 5.0
"""Of the machine being busy, in seconds."""
HANDLERS = """
import asyncio, random, time
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.execution.max_workers = 20

@kopf.on.create("kopfexamples")
def create_hanging(name, logger, **_):
    if name.startswith("hanging"):
        logger.info("This one hangs.")
        while True:
            time.sleep(3600)

@kopf.on.create("kopfexamples")
async def create_slowly(body, **_):
    kopf.info(body, reason="Slow", message="It is slow.")
    await asyncio.sleep(random.random())

@kopf.timer("kopfexamples", interval=0.1)
def tick(patch, **_):
    patch.status["ticked"] = time.time()

@kopf.daemon("kopfexamples", labels={"daemonic": "true"})
def hanging_daemon(**_):
    while True:
        time.sleep(3600)

@kopf.daemon("kopfexamples")
async def polite_daemon(stopped, **_):
    await stopped.wait()

@kopf.daemon("kopfexamples", labels={"daemonic": "true"})
async def impolite_daemon(stopped, **_):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""
CRD = pathlib.Path(__file__).parent.parent.parent / "examples" / "01-minimal" / "crd.yaml"


@contextlib.contextmanager
def loading(cluster: LocalCluster) -> Iterator[None]:
    """Create and change objects all the time; some of them hang in the handlers."""
    stopped = threading.Event()

    def work() -> None:
        for number in range(10**6):
            prefix = "hanging" if number % 5 == 0 else "usual"
            name = f"{prefix}-{number % 50}"
            metadata = {"name": name, "namespace": "default", "labels": {"daemonic": str(number % 10 == 1).lower()}}
            cluster.apply(
                {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata, "spec": {"number": number}}
            )
            if stopped.wait(0.02):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def check_exit(run: int, folder: pathlib.Path) -> None:
    folder.mkdir()
    (folder / "handlers.py").write_text(HANDLERS)
    dice = random.Random(run)
    with LocalCluster() as cluster:
        cluster.apply(CRD)
        env = {"KUBECONFIG": str(cluster.kubeconfig), "KOPF_TEST_LOOP": ("asyncio", "uvloop")[run % 2]}
        args = ("run", "-A", "--standalone", "handlers.py")
        with loading(cluster), Process(*args, cwd=folder, log=folder / "log", env=env) as operator:
            operator.wait_for("This one hangs")
            time.sleep(dice.uniform(0, 1))
            operator.send_signal(dice.choice([signal.SIGTERM, signal.SIGINT]))
            duration, exit_code = wait_for_exit(operator)
            assert duration < LIMIT + SPARE
            assert exit_code == 0
            assert "Traceback" not in operator.output
            assert "never retrieved" not in operator.output


def wait_for_exit(operator: Process) -> tuple[float, int]:
    """Tell how long it takes, in seconds, without those when others have the processors; and the exit code."""
    started, before, starvation = time.monotonic(), get_starvation(operator.pid), 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            exit_code = operator.wait(0.1)
            return time.monotonic() - started - starvation, exit_code
        starvation = max(starvation, get_starvation(operator.pid) - before)  # the ended threads are not there any more
        assert time.monotonic() - started < PATIENCE


@pytest.mark.timeout(300 + 30 * RUNS // AT_ONCE)
def test_exits_in_time_under_load(tmp_path: pathlib.Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = [pool.submit(check_exit, run, tmp_path / str(run)) for run in range(RUNS)]
    for outcome in outcomes:
        outcome.result()
