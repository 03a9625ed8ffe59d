"""
Processes that are asked to exit in the middle of everything: what their handlers have done is not done again.

The journal is written by the handlers as their last deed. So, what has ended is there, even if its process never got
to say so. What was only begun, is not there, and is to be done by the next process.
"""

from __future__ import annotations

import collections
import os
import pathlib
import random
import time
from collections.abc import Iterator

import pytest

from kopf.testing import LocalCluster
from tests.behaviour.objects import is_handled
from tests.cli.api import request
from tests.cli.conftest import EXAMPLE
from tests.cli.processes import Process
from tests.patience import PATIENCE

SIGTERMS = int(os.environ.get("KOPF_TEST_SIGTERMS") or 4)
"""How many processes are started & stopped."""
NEW_OBJECTS = 5
"""How many objects are created for every one of them."""
HANDLERS = 4
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"
OPERATOR = """
import asyncio, os, random, time
import kopf

journal = os.open("journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(name, param):
    os.write(journal, f"{name} {param}\\n".encode())  # one write of a short line is atomic in the mode of appending

async def async_fn(name, param, patch, **_):
    await asyncio.sleep(random.uniform(0, 0.3))
    patch.status["seen"] = param
    note(name, param)
    return "result"

def sync_fn(name, param, patch, **_):
    time.sleep(random.uniform(0, 0.3))
    patch.status["seen"] = param
    note(name, param)

for number in range(4):
    kopf.on.create("kopfexamples", id=f"fn{number}", param=number)(sync_fn if number % 2 else async_fn)
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """The events are late, and so is every second answer to the patches."""
    with LocalCluster(seed=0) as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        cluster.faults.lag_watches(0, up_to=0.5)
        cluster.faults.inject(action="delay", verb="patch", latency=0.2, rate=0.5)
        yield cluster


def create_objects(cluster: LocalCluster, run: int) -> None:
    for number in range(run * NEW_OBJECTS, (run + 1) * NEW_OBJECTS):
        metadata = {"name": f"obj{number}", "namespace": "default"}
        cluster.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata, "spec": {"n": number}})


def wait_for_news(journal: pathlib.Path, operator: Process) -> None:
    """Wait until any handler has ended since then."""
    seen, deadline = journal.stat().st_size, time.monotonic() + PATIENCE
    while journal.stat().st_size == seen:
        assert time.monotonic() < deadline, operator.output
        time.sleep(0.005)


@pytest.mark.timeout(300 + 10 * SIGTERMS)
def test_what_has_ended_does_not_run_again_after_sigterm(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text(OPERATOR)
    journal = tmp_path / "journal"
    journal.touch()
    dice = random.Random(SIGTERMS)
    args = ("run", "-A", "--standalone", "handlers.py")
    for run in range(SIGTERMS):
        create_objects(cluster, run)
        with Process(*args, cwd=tmp_path, log=tmp_path / f"log{run}") as operator:
            wait_for_news(journal, operator)
            time.sleep(dice.uniform(0, 0.5))
            assert operator.stop() == 0
            assert "Traceback" not in operator.output
    wanted = {f"obj{number} {param}" for number in range(SIGTERMS * NEW_OBJECTS) for param in range(HANDLERS)}
    missing = wanted - set(journal.read_text().splitlines())
    assert missing, "all was done before the last signal, so it was not in the middle of anything"
    with Process(*args, cwd=tmp_path, log=tmp_path / "log") as operator:
        deadline = time.monotonic() + PATIENCE
        while not all(is_handled(obj) for obj in request(cluster, "GET", PATH)["items"]):
            assert time.monotonic() < deadline, operator.output
            time.sleep(0.1)
    counts = collections.Counter(journal.read_text().splitlines())
    assert counts == dict.fromkeys(wanted, 1)
