"""
Final states: the objects and problems at the end of a run, when all is settled; to compare runs with each other.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kopf._testing.exploring.normalizing import normalize
from kopf._testing.exploring.problems import Problem
from kopf._testing.simulation import Simulation
from kopf._testing.watch_events import WatchEvent
from kopf._values.diffs import DiffOperation
from kopf._virtual_time.journal import Journal, ObjectPlace, Write, describe_diff, shorten

_NOT_COMPARED = frozenset(
    {
        "customresourcedefinitions.apiextensions.k8s.io",
        "kopfpeerings.kopf.dev",
        "clusterkopfpeerings.kopf.dev",
    }
)
_MAX_VALUE = 100
_DIFFERENCES: Mapping[DiffOperation, str] = {
    DiffOperation.ADD: "{path} is {new}, but must be absent",
    DiffOperation.REMOVE: "{path} is absent, but must be {old}",
    DiffOperation.CHANGE: "{path} is {new}, but must be {old}",
}
"""How long a value is shown, in characters."""


@dataclasses.dataclass(frozen=True)
class Story:
    """The numbers of moments at which trouble can begin."""

    writes: int = 0
    """The number of write requests of the operator."""
    changes: int = 0
    """The number of changes in the cluster, i.e. of watch events."""
    steps: int = 0
    """The number of changes by the test."""
    events: Sequence[WatchEvent] = ()
    """The watch events of the operator, if they were recorded."""


@dataclasses.dataclass(kw_only=True)
class FinalState:
    """The state at the end of a run."""

    objects: Mapping[str, Any]
    """The changed objects, as far as they are comparable, by their kinds and names."""
    outside: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The state outside of the cluster, from ``observe``."""
    problems: list[Problem] = dataclasses.field(default_factory=list)
    """The problems of this run itself, besides all comparisons."""
    journal: str = ""
    """The journal of the run."""
    overlaps: Sequence[str] = ()
    """The pairs of handlers that ran at once in threads."""
    story: Story = Story()
    """The events of the run."""
    is_comparable: bool = True
    """Whether the objects are known: not if they are deleted at the end, or if the run has failed."""

    def compare(self, expected: FinalState) -> list[str]:
        """List the differences from the expected state, and the own problems."""
        known = {problem.key for problem in expected.problems}
        problems = [problem.text for problem in self.problems if problem.key not in known]
        if not self.is_comparable:
            return problems
        return [
            *problems,
            *_compare_objects(expected.objects, self.objects),
            *_compare_fields("outside", expected.outside, self.outside),
        ]

    def raise_error(self) -> None:
        """Raise the error that has ended the run, if any."""
        for problem in self.problems:
            if problem.error is not None:
                raise problem.error


async def read_objects(simulation: Simulation, ignored: Collection[str]) -> dict[str, Any]:
    """Read all objects that were changed in the simulation, and make them comparable."""
    found = []
    for resource, namespace, name in list_places(simulation.journal):
        if resource in _NOT_COMPARED or resource in ignored or resource.partition(".")[0] in ignored:
            continue
        obj = await simulation.find(resource, name, namespace=namespace or "default")
        if obj is not None:
            found.append((resource, obj))
    objects = normalize(found)
    for obj in objects.values():
        for path in ignored:
            _forget(obj, path.split("."))
    return objects


def list_places(journal: Journal) -> list[ObjectPlace]:
    """List all objects that were changed, in the order of their first changes."""
    return list(dict.fromkeys(entry.place for entry in journal if isinstance(entry, Write)))


def _forget(value: Any, path: Sequence[str]) -> None:
    for key in path[:-1]:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(path[-1], None)


def _compare_objects(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    lines = []
    for name in sorted({*expected, *actual}):
        if name not in actual:
            lines.append(f"{name}: it is not there, but must be")
        elif name not in expected:
            lines.append(f"{name}: it is there, but must not be")
        else:
            lines += _compare_fields(name, expected[name], actual[name])
    return lines


def _compare_fields(name: str, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {line}" for line in describe_diff(expected, actual, _DIFFERENCES, _show)]


def _show(value: Any) -> str:
    return shorten(json.dumps(value, default=repr), _MAX_VALUE)
