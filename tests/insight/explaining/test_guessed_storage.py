"""Objects that are handled by other operators: of the original framework, with storages that nobody has told us of."""

from __future__ import annotations

import copy
import json
import pathlib

import pytest

import kopf
from kopf._insight.explaining.assembly import explain
from kopf._insight.explaining.guessed_storage import adapt_persistence
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject
from tests.behaviour.half_handled import LONG_ID, SCENARIOS, STORAGES, Scenario
from tests.insight.explaining.objects_and_facts import make_facts, make_object, make_snapshots

FIXTURES = pathlib.Path(__file__).parent.parent.parent / "behaviour" / "fixtures" / "half-handled"


async def fn(**_: object) -> None: ...


def declare_all() -> kopf.OperatorRegistry:
    """The handlers of the operators that have left the objects."""
    registry = kopf.OperatorRegistry()
    for id in ("first", "second", LONG_ID):
        kopf.on.create("kopfexamples", id=id, registry=registry)(copy.copy(fn))
    kopf.on.create("kopfexamples", id="parent", labels={"parent": "yes"}, registry=registry)(fn)
    for id in ("update-first", "update-second"):
        kopf.on.update("kopfexamples", id=id, registry=registry)(fn)
    for id in ("delete-first", "delete-second"):
        kopf.on.delete("kopfexamples", id=id, registry=registry)(fn)
    return registry


@pytest.mark.parametrize(
    ("storage", "scenario"),
    [
        pytest.param(storage, scenario, id=f"{storage}-{scenario.name}")
        for storage in STORAGES
        for scenario in SCENARIOS
        if (storage, scenario.name) != ("status", "handled")  # nothing tells that state from what users have there
    ],
)
def test_objects_of_the_original_framework(storage: str, scenario: Scenario) -> None:
    content = json.loads((FIXTURES / f"{storage}-{scenario.name}.json").read_text())
    obj = KubeObject.from_dict({**content, "apiVersion": "kopf.dev/v1", "kind": "KopfExample"})
    settings = OperatorSettings()
    notes = adapt_persistence(settings.persistence, obj)
    assert bool(notes) == (storage != "default")
    snapshots = make_snapshots(settings, ())
    answer = explain(make_facts(obj, [*declare_all().resources], settings=settings, snapshots=snapshots))
    progress = {info["id"]: info["progress"] for info in answer["handlers"]}
    progress |= {item["handler"]: item for info in answer["handlers"] for item in info["subhandlers"]}
    outcomes = {key: info["outcome"] for key, info in progress.items() if info is not None}
    assert answer["leftovers"] == []
    assert answer["handled"] is not None
    if scenario.held is None:
        assert outcomes == {}
        assert (answer["handled"]["known"], answer["handled"]["changes"]) == (True, [])
    else:
        assert answer["handled"]["reason"] == scenario.phase
        assert {outcomes.get(key) for key in scenario.done} == {"succeeded"}
        assert "retrying" in [outcomes.get(key) for key in scenario.rest]


@pytest.mark.parametrize(
    "status",
    [
        None,
        1,
        [],
        "x",
        {"kopf": 1},
        {"kopf": {"progress": [1]}},
        {"a": {"progress": {"b": 1}}},
    ],
)
def test_statuses_of_any_kind(status: object) -> None:
    settings = OperatorSettings()
    assert adapt_persistence(settings.persistence, make_object({"status": status})) == []


def test_there_can_be_several_operators() -> None:
    annotations = {"b.dev/kopf-managed": "yes", "a.dev/kopf-managed": "yes"}
    notes = adapt_persistence(OperatorSettings().persistence, make_object({"metadata": {"annotations": annotations}}))
    assert "under 'a.dev'" in notes[0]
    assert "under 'b.dev'" in notes[1]
