"""Nothing of a simulation is left when it ends, well or badly."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
import time
import weakref
from typing import Any

import pytest

import kopf
from kopf.testing import SyncSimulation
from tests.testing.kopfexamples import CRD, make


def take_snapshot() -> dict[str, object]:
    """Note what could be changed; threads, sockets and tasks are looked at after every test anyway."""
    logger = logging.getLogger("kopf")
    return {
        "environment": {**os.environ, "PYTEST_CURRENT_TEST": ""},
        "random": random.getstate(),
        "sleep": time.sleep,
        "handlers": [*logger.handlers],
        "level": logger.level,
        "registry": kopf.get_default_registry(),
    }


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    before = take_snapshot()
    yield
    assert take_snapshot() == before


@pytest.mark.parametrize("kubeconfig", [None, "/nosuch"])
def test_the_environment(monkeypatch: pytest.MonkeyPatch, kubeconfig: str | None) -> None:
    if kubeconfig is None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
    else:
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
    with SyncSimulation(operator=False) as simulation:
        assert os.environ["KUBECONFIG"] == str(simulation.kubeconfig)
    assert os.environ.get("KUBECONFIG") == kubeconfig
    assert not simulation.kubeconfig.exists()


def test_running_handlers() -> None:
    @kopf.on.create("kopfexamples")
    def create_fn(**_: Any) -> None:
        time.sleep(1000)

    @kopf.daemon("kopfexamples")
    def daemon_fn(stopped: Any, **_: Any) -> None:
        stopped.wait()

    @kopf.daemon("kopfexamples", cancellation_timeout=1)
    async def endless_fn(**_: Any) -> None:
        await asyncio.sleep(10**6)

    with SyncSimulation(crds=CRD) as simulation:
        for n in range(3):
            simulation.apply(make(f"obj{n}"))
        simulation.advance(seconds=10)


def test_errors_of_the_test() -> None:
    with pytest.raises(ZeroDivisionError), SyncSimulation(crds=CRD):
        raise ZeroDivisionError


def test_errors_in_the_beginning() -> None:
    with pytest.raises(Exception, match="nosuch"), SyncSimulation(crds={**make(), "kind": "nosuch"}):
        raise AssertionError


def test_trouble() -> None:
    with SyncSimulation(crds=CRD) as simulation:
        simulation.faults.partition(10**6)
        simulation.advance(seconds=1)
        simulation.crash()


def test_an_operator_behind_a_partition_exits_too() -> None:
    with SyncSimulation(crds=CRD) as simulation:
        simulation.faults.partition()
        simulation.apply(make())
        simulation.advance(minutes=1)


def test_no_garbage_refers_to_it() -> None:
    with SyncSimulation(crds=CRD) as simulation:
        simulation.advance(seconds=1)
    inner = weakref.ref(simulation.simulation)
    del simulation
    gc.collect()
    assert inner() is None


def test_modules_that_remember_the_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import kube_config

    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", "/nosuch")
    with SyncSimulation(operator=False) as simulation:
        assert str(simulation.kubeconfig) == kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    assert kube_config.KUBE_CONFIG_DEFAULT_LOCATION == "/nosuch"
    assert "kubernetes" in sys.modules
