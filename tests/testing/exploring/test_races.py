"""Races between the threads of handlers are called what they are."""

from __future__ import annotations

import itertools
import json
import os
import threading
import urllib.request
from typing import Any

import pytest
import yaml

import kopf
from kopf.testing import Simulation, SimulationError, explore
from tests.patience import PATIENCE
from tests.testing.kopfexamples import CRD, make

OPTIONS: dict[str, Any] = {"crds": CRD, "patience": PATIENCE}


def request(method: str, body: Any = None) -> Any:
    """Do as client libraries do in threads: ask the cluster by its port."""
    with open(os.environ["KUBECONFIG"], encoding="utf-8") as file:
        server = yaml.safe_load(file)["clusters"][0]["cluster"]["server"]
    data = None if body is None else json.dumps(body).encode()
    url = f"{server}/api/v1/namespaces/default/configmaps/list"
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return json.load(answer)


def make_operator(rounds: list[threading.Barrier | None]) -> kopf.OperatorRegistry:
    """Give an operator that loses an update where there is a barrier: both handlers read before any of them writes."""
    registry = kopf.OperatorRegistry()
    lock = threading.Lock()

    @kopf.on.create("kopfexamples", registry=registry, id="add_to_list")
    def add_to_list(name: str, **_: Any) -> None:
        barrier = rounds[0]
        if barrier is None:
            with lock:
                write_back(name, None)
        else:
            write_back(name, barrier)

    def write_back(name: str, barrier: threading.Barrier | None) -> None:
        found = request("GET")
        if barrier is not None:
            barrier.wait(PATIENCE)
        found["metadata"].pop("resourceVersion")
        request("PUT", {**found, "data": {**found.get("data", {}), name: "here"}})

    return registry


async def tell(simulation: Simulation) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "list", "namespace": "default"}}
    await simulation.apply(config)
    await simulation.apply(make("one"))
    await simulation.apply(make("two"))
    await simulation.settle()


def test_lost_updates() -> None:
    """By chance, the first run has come out well, and the others have not."""
    rounds: list[threading.Barrier | None] = [None]

    @explore(registry=make_operator(rounds), **OPTIONS, troubles=["doubled event"], runs=1)
    async def story(simulation: Simulation) -> None:
        await tell(simulation)
        rounds[0] = threading.Barrier(2)

    with pytest.raises(SimulationError) as caught:
        story()
    text = str(caught.value)
    assert "configmaps default/list" in text
    assert "'add_to_list' of kopfexamples.kopf.dev default/one, and 'add_to_list' of kopfexamples.kopf.dev" in text
    assert "a lost update" in text
    assert "resourceVersion" in text
    assert "outside of the cluster" not in text


def test_failures_tell_of_races() -> None:
    """Without trouble, all comes out well, and it would by chance with it, too."""
    rounds: list[threading.Barrier | None] = [None]
    runs = itertools.count()

    @explore(registry=make_operator(rounds), **OPTIONS, troubles=["doubled event"], runs=1)
    async def story(simulation: Simulation) -> None:
        rounds[0] = threading.Barrier(2) if next(runs) == 1 else None
        await tell(simulation)

    with pytest.raises(AssertionError, match="ran at once in threads(.|\n)*a lost update"):
        story()


def test_handlers_that_only_sleep_at_once_are_no_race() -> None:
    registry = kopf.OperatorRegistry()
    calls: list[str] = []

    @kopf.on.create("kopfexamples", registry=registry)
    def note(name: str, **_: Any) -> None:
        calls.append(name)

    @explore(registry=registry, **OPTIONS, troubles=["doubled event"], runs=1, observe=lambda: {"calls": [*calls]})
    async def story(simulation: Simulation) -> None:
        await tell(simulation)

    with pytest.raises(SimulationError, match="outside of the cluster") as caught:
        story()
    assert "threads" not in str(caught.value)
