"""One seed, one story: journals are equal to the byte, whatever the process and its hash seed are."""

from __future__ import annotations

import asyncio
import functools
import os
import pathlib
import random
import re
import subprocess
import sys
import time
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation, simulate
from kopf_cluster.http.memory import MemoryNetwork
from tests.patience import PATIENCE
from tests.testing.kopfexamples import CRD, make

ROOT = pathlib.Path(__file__).parent.parent.parent


def make_registry() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)  # others depend on what is imported

    @kopf.on.create("kopfexamples", registry=registry)
    def create_fn(name: str, retry: int, patch: kopf.Patch, **_: Any) -> None:
        time.sleep(random.random())
        if retry < 2 and name.endswith("3"):
            raise kopf.TemporaryError("Not yet.", delay=random.randrange(10))
        patch.status["seen"] = random.randrange(1000)

    @kopf.on.update("kopfexamples", registry=registry)
    async def update_fn(**_: Any) -> None:
        pass

    @kopf.daemon("kopfexamples", registry=registry)
    def daemon_fn(stopped: Any, **_: Any) -> None:
        stopped.wait(100)

    @kopf.timer("kopfexamples", interval=7, registry=registry)
    async def timer_fn(**_: Any) -> None:
        pass

    @kopf.daemon("kopfexamples", registry=registry, cancellation_timeout=1)
    async def endless_fn(**_: Any) -> None:
        await asyncio.sleep(1000)

    for resource in ("pods", "deployments.apps", "jobs.batch", "configmaps", "nosuch.example.com"):
        kopf.on.event(resource, registry=registry)(update_fn)

    return registry


async def live(simulation: Simulation) -> str:
    """Live through a story with all kinds of handlers and trouble, and tell it."""
    simulation.faults.fail(rate=0.2)
    simulation.faults.lag(0, up_to=1)
    for n in range(5):
        await simulation.apply(make(f"obj{n}"))
    await simulation.advance(minutes=1)
    await simulation.restart()
    await simulation.crash()
    await simulation.restart()
    for n in range(5):
        await simulation.patch("kopfexamples", f"obj{n}", {"spec": {"size": n}})
        await simulation.delete("kopfexamples", f"obj{n}")
    simulation.faults.clear()
    await simulation.settle(calm=30)
    return f"{simulation.journal}\n{simulation.logs}"


def tell(seed: int) -> str:
    return simulate(live, registry=make_registry(), crds=CRD, seed=seed, namespaces=["default", "kube-*"])


tell_once = functools.cache(tell)


def test_other_seeds_other_stories() -> None:
    assert len({tell_once(seed) for seed in range(3)}) == 3


def test_it_is_the_same_with_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usual requests go by a shortcut, and all that happens is the same; only timers of one moment change places."""

    monkeypatch.setattr(MemoryNetwork, "find_shortcut", lambda network: None)
    with_connections, usual = (re.sub(r"127\.0\.0\.1:\d+", "", text) for text in (tell(1), tell_once(1)))
    assert sorted(with_connections.splitlines()) == sorted(usual.splitlines())


def test_it_is_the_same_in_all_processes() -> None:
    code = "from tests.testing import test_determinism as t; print(t.tell(1), end='')"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},  # the hashes of this process are random
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert told.stdout == tell_once(1)


def test_one_seed_one_story_and_the_randomness_of_the_process_is_as_before() -> None:
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    seen = [random.random()]
    assert tell(1) == tell_once(1)
    seen.append(random.random())
    assert seen == expected[:2]
