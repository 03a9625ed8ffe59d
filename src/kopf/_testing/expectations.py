"""
Expectations of an object's future state; if they are not met, the failure shows the timeline of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict

from kopf._testing.calling_options import check_names
from kopf._testing.simulated_objects import SimulatedObjects
from kopf._virtual_time.patience import SimulationError

_ANY = object()
_ABSENT = object()


class Place(NamedTuple):
    """The identity of an object, in requests and in the journal."""

    kind: str
    namespace: str
    name: str
    resource: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"

    def describe_timeline(self, simulation: SimulatedObjects) -> str:
        """Return all calls, changes, and logs of the object in the order of time."""
        entries = [
            (entry.time, str(entry))
            for entry in simulation.journal.get_timeline((self.resource, self.namespace, self.name))
        ]
        lines = [
            (line.time, str(line))
            for line in simulation.logs
            if (line.namespace, line.name) == (self.namespace, self.name) and not line.is_routine
        ]
        return "\n".join(text for _, text in sorted(entries + lines, key=lambda pair: pair[0]))


async def locate(simulation: SimulatedObjects, kind: str | Mapping[str, Any], name: str, namespace: str) -> Place:
    """Find the identity of the object from its kind and name, or from any of its states."""
    if isinstance(kind, Mapping):
        if not {"apiVersion", "kind", "metadata"} <= kind.keys():
            raise SimulationError("The object must have apiVersion, kind, and metadata, or be given by kind and name.")
        metadata = kind["metadata"]
        group, _, version = str(kind["apiVersion"]).rpartition("/")
        name, namespace = metadata["name"], metadata.get("namespace", "")
        kind = f"{kind['kind']}.{version}.{group}" if group else str(kind["kind"])
    if not name:
        raise SimulationError(f"Give the name of the object, too, not only its kind {kind!r}.")
    plural, full, is_namespaced = simulation.cluster.resolve_kind(kind)
    return Place(plural, namespace if is_namespaced else "", name, full)


class Wanted(TypedDict, total=False):
    """The expected state of an object."""

    field: str | tuple[str, ...]
    """The path to a field, e.g. ``status.phase`` or ``("metadata", "labels", "app.kubernetes.io/name")``."""
    value: Any
    """The expected value of the field; any value by default. ``None`` means that the field must be absent."""
    condition: Callable[[dict[str, Any]], object]
    """A predicate of the whole object; if it fails because of missing keys, it counts as false."""
    absent: bool
    """Whether the object must not exist."""


class Expectation:
    """An expectation of one object, and the latest seen state of the object."""

    def __init__(self, simulation: SimulatedObjects, place: Place, wanted: Wanted) -> None:
        check_names(wanted, Wanted)
        if "value" in wanted and not wanted.get("field"):
            raise TypeError("The option value= needs field=: name the field.")
        field = wanted.get("field", ())
        self._simulation = simulation
        self._place = place
        self._field = tuple(field.split(".")) if isinstance(field, str) else field
        self._value = wanted.get("value", _ANY)
        self._condition = wanted.get("condition")
        self._absent = wanted.get("absent", False)
        self._seen: dict[str, Any] | None = None

    async def wait(self, within: float) -> dict[str, Any]:
        """Let time pass until it is met, and return the object; or fail."""
        try:
            await self._simulation.until(self._is_met, timeout=within)
        except TimeoutError:
            timeline = self._place.describe_timeline(self._simulation)
            raise AssertionError(
                f"{self._place} is not as expected in {within:g} seconds: {self._explain()}.\n"
                f"The timeline of the object:\n{timeline}"
            ) from None
        return self._seen or {}

    async def _is_met(self) -> bool:
        place = self._place
        self._seen = await self._simulation.find(place.kind, place.name, namespace=place.namespace or "default")
        if self._seen is None or self._absent:
            return self._absent and self._seen is None
        if self._field and not self._is_value(self._read(self._seen)):
            return False
        try:
            return self._condition is None or bool(self._condition(self._seen))
        except (LookupError, TypeError, AttributeError):
            return False  # some keys are not there yet

    def _is_value(self, value: Any) -> bool:
        if self._value is _ANY:
            return value is not _ABSENT
        return value is _ABSENT if self._value is None else bool(value == self._value)

    def _read(self, obj: Mapping[str, Any]) -> Any:
        value: Any = obj
        for key in self._field:
            if not isinstance(value, Mapping) or key not in value:
                return _ABSENT
            value = value[key]
        return _ABSENT if value is None else value

    def _explain(self) -> str:
        if self._seen is None:
            return "it is not there"
        if self._absent:
            return "it is there"
        if self._field and not self._is_value(value := self._read(self._seen)):
            shown = "absent" if value is _ABSENT else repr(value)
            wanted = "anything" if self._value is _ANY else "nothing" if self._value is None else repr(self._value)
            return f"{'.'.join(self._field)} is {shown}, while it must be {wanted}"
        return "the condition is not true"
