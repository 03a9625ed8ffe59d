"""
Makes objects that are handled halfway by an operator in a process of its own, i.e. by any framework.

Each scenario leaves an object in the middle of something. The operator is killed then, not stopped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from tests.behaviour.objects import Obj, Objects

STORAGES = ["default", "prefixed", "status", "multi"]
LONG_ID = "a-long-id/" + "x" * 60


@dataclasses.dataclass(frozen=True)
class Scenario:
    """How an object gets to the middle of something."""

    name: str
    held: str | None
    """Which handler holds the object there; nobody, if it is handled completely."""
    done: tuple[str, ...] = ()
    """Which handlers are done by then, in this phase."""
    rest: tuple[str, ...] = ()
    """Which handlers are left for the other framework."""
    phase: str = "create"
    labels: tuple[tuple[str, str], ...] = ()


SCENARIOS = [
    Scenario("handled", None, ("first", "second", LONG_ID)),
    Scenario("created", "second", ("first", LONG_ID), ("second",)),
    Scenario(
        "parent",
        "sub-second",
        ("first", "second", LONG_ID, "parent/sub-first"),
        ("parent/sub-second", "parent"),
        labels=(("parent", "yes"),),
    ),
    Scenario("updated", "update-second", ("update-first",), ("update-second",), phase="update"),
    Scenario("deleted", "delete-second", ("delete-first",), ("delete-second",), phase="delete"),
]


async def bring_there(scenario: Scenario, objects: Objects) -> Obj:
    """Create the object and bring it to the middle of something, while the operator runs."""
    await objects.create(scenario.name, spec=make_spec(scenario, "create"), labels=dict(scenario.labels))
    if scenario.phase != "create":
        await objects.wait(is_finished, scenario.name)
        await objects.merge({"spec": make_spec(scenario, scenario.phase)}, scenario.name)
    if scenario.phase == "delete":
        await objects.wait(is_finished, scenario.name)
        await objects.delete(scenario.name)
    return await objects.wait(lambda obj: is_there(scenario, obj), scenario.name)


def make_spec(scenario: Scenario, phase: str) -> Obj:
    is_held = scenario.held is not None and phase == scenario.phase
    return {"field": phase if phase == "update" else "value", "hold": [scenario.held] if is_held else []}


def is_there(scenario: Scenario, obj: Obj) -> bool:
    """Whether the object has come as far as it has to."""
    if scenario.held is None:
        return is_finished(obj)
    records = list_records(obj)
    is_waiting = any(record.get("message") == "held" for record in records)
    return is_waiting and sum(record.get("success") is True for record in records) >= len(scenario.done)


def is_finished(obj: Obj) -> bool:
    """Whether the handling is over: there is no progress left, and the last handled state is the actual one."""
    is_handled = any(value.get("spec") == obj["spec"] for value in walk(obj) if "started" not in value)
    return is_handled and not list_records(obj)


def list_records(obj: Obj) -> list[Obj]:
    """All records of the progress, wherever they are; with no repetitions."""
    records = [value for value in walk(obj) if "started" in value and "purpose" in value]
    return [record for index, record in enumerate(records) if record not in records[:index]]


def walk(obj: Obj) -> Iterator[Obj]:
    """All dicts that are stored by the frameworks: as they are, or as JSON in strings."""
    pending: list[Any] = [obj["metadata"].get("annotations", {}), obj.get("status", {})]
    while pending:
        value = pending.pop()
        if isinstance(value, str) and value.startswith("{"):
            value = json.loads(value)
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
