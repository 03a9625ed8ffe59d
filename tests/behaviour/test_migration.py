"""
Migration: what one framework has begun, the other one finishes, in both directions, with any storages.

The objects half-handled by the original one are in the fixtures; see ``tools/generate_half_handled.py``. For the other
direction, the original is needed: ``make migration`` installs and runs it.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour import migrating, migrating_replica_sets
from tests.behaviour.conftest import Load
from tests.behaviour.elsewhere import run_elsewhere
from tests.behaviour.half_handled import SCENARIOS, STORAGES, Scenario, bring_there, is_finished
from tests.behaviour.objects import API, Obj, Objects, get_annotations, watch
from tests.behaviour.replica_sets import COPIED, create_replica_set, get_callers, is_handled
from tests.behaviour.running import Operator
from tests.conftest import ORIGINAL_MISSING
from tests.differential.hosting import get_original_python

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "half-handled"

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MIGRATION_STORAGE", request.param)
    return str(request.param)


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.name)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    assert isinstance(request.param, Scenario)
    return request.param


@pytest.fixture
def original() -> str:
    """The command of the original framework; if it is not installed, the test is skipped, and the summary says so."""
    python = get_original_python()
    if python is None:
        pytest.skip(ORIGINAL_MISSING)
    return str(pathlib.Path(python).parent / "kopf")


def load_operator(load: Load) -> None:
    load(pathlib.Path(migrating.__file__).read_text())


async def restore(objects: Objects, obj: Obj) -> None:
    """Put the object to the cluster as it was in another one."""
    meta = obj["metadata"]
    metadata = {key: meta[key] for key in ("labels", "annotations", "finalizers") if key in meta}
    await objects.create(meta["name"], spec=obj["spec"], status=obj["status"], **metadata)
    if "deletionTimestamp" in meta:
        await objects.delete(meta["name"])


async def finish(scenario: Scenario, objects: Objects) -> Obj:
    if scenario.phase == "delete":
        return await objects.wait_gone(scenario.name)
    return await objects.wait(is_finished, scenario.name)


def check_results(scenario: Scenario, obj: Obj, *, before: str, after: str) -> None:
    """Each handler was called by the one who had to call it."""
    results: dict[str, Any] = obj["status"]
    assert {id: results.get(id) for id in scenario.done} == dict.fromkeys(scenario.done, before)
    assert {id: results.get(id) for id in scenario.rest} == dict.fromkeys(scenario.rest, after)


async def test_half_handled_by_the_original(
    operator: Operator,
    kex: Objects,
    load: Load,
    storage: str,
    scenario: Scenario,
) -> None:
    obj = json.loads((FIXTURES / f"{storage}-{scenario.name}.json").read_text())
    await restore(kex, obj)
    load_operator(load)
    await operator.start()
    check_results(scenario, await finish(scenario, kex), before="original", after="ours")
    if scenario.held is None:  # once something else is handled, it is known that nothing is done with this one
        await kex.create("another")
        await kex.wait(is_finished, "another")
        assert len(kex.get_history(scenario.name)) == 1


async def test_half_handled_for_the_original(
    operator: Operator,
    kex: Objects,
    load: Load,
    storage: str,
    scenario: Scenario,
    original: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIGRATION_HOLDING", "yes")
    load_operator(load)
    await operator.start()
    await bring_there(scenario, kex)
    await operator.stop()
    env = {
        "KUBECONFIG": str(operator.cluster.kubeconfig),
        "MIGRATION_WHO": "original",
        "MIGRATION_STORAGE": storage,
    }
    seen = len(kex.get_history(scenario.name))
    async with run_elsewhere(original, migrating.__file__, **env):
        check_results(scenario, await finish(scenario, kex), before="ours", after="original")
        if scenario.held is None:
            await kex.create("another")
            await kex.wait(is_finished, "another")
            assert len(kex.get_history(scenario.name)) == seen


@pytest.mark.parametrize("first", ["original", "ours"])
async def test_replica_sets_of_deployments(
    operator: Operator,
    api: API,
    load: Load,
    first: str,
    original: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are marked by both, so that neither takes the annotations of the Deployments for theirs."""

    def is_held(obj: Obj) -> bool:
        return "second-ofDRS" in "".join(get_annotations(obj)) and "first" in get_callers(obj)

    async def run_original(objects: Objects, condition: Callable[[Obj], bool], **env: str) -> Obj:
        env = {"KUBECONFIG": str(operator.cluster.kubeconfig), "MIGRATION_WHO": "original", **env}
        async with run_elsewhere(original, migrating_replica_sets.__file__, **env):
            return await objects.wait(condition)

    async def run_ours(objects: Objects, condition: Callable[[Obj], bool]) -> Obj:
        load(pathlib.Path(migrating_replica_sets.__file__).read_text())
        await operator.start(watching=("replicasets",))
        obj = await objects.wait(condition)
        await operator.stop()
        return obj

    async with watch(api, "ReplicaSet", "replicasets", group="apps") as objects:
        await create_replica_set(objects)
        if first == "ours":
            monkeypatch.setenv("MIGRATION_HOLDING", "yes")
            await run_ours(objects, is_held)
            obj = await run_original(objects, is_handled)
        else:
            await run_original(objects, is_held, MIGRATION_HOLDING="yes")
            obj = await run_ours(objects, is_handled)
    assert get_callers(obj) == {"first": first, "second": ({"ours", "original"} - {first}).pop()}
    assert {key: get_annotations(obj)[key] for key in COPIED} == COPIED
