"""
Objects of built-in kinds for property-based tests, drawn from their structures; and the ways through these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from kopf_cluster.kinds import resources
from kopf_cluster.kinds.defaults import find_plan
from kopf_cluster.kinds.structures import Structure

KINDS = [one.definition for one in resources.read_resources() if one.is_stored]


def find(structure: Structure, *path: str) -> Structure:
    """Give what is at this path: names of fields, and ``[]`` for what is in an array or in a map."""
    for name in path:
        below = structure.items if name == "[]" else structure.fields.get(name)
        assert below is not None, f"there is no {name!r} in {structure.go_type}"
        structure = below
    return structure


def fill_defaults(value: Any, structure: Structure) -> None:
    """Add the defaults in place."""
    if (plan := find_plan(structure)) is not None:
        plan.apply(value)


def walk(structure: Structure) -> Iterator[Structure]:
    """Give the structure and all that is in it, each once, even if it contains itself."""
    seen: set[int] = set()
    pending = [structure]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += [*one.fields.values(), *([one.items] if one.items is not None else [])]


_NAMES = st.text("abcXYZ-_", min_size=1, max_size=8)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text("abc-", max_size=5),
    "boolean": st.booleans(),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "number": st.floats(-1e6, 1e6),
    "quantity": st.sampled_from(["100m", "1", "2Gi", "0", "12e6"]),
    "int-or-string": st.one_of(st.integers(0, 100), st.sampled_from(["25%", "http"])),
    "any": st.one_of(st.integers(), st.dictionaries(_NAMES, st.lists(st.booleans(), max_size=2), max_size=2)),
}
_FORMATTED: dict[str, st.SearchStrategy[str]] = {
    "date-time": st.sampled_from(["2024-02-29T10:20:30Z", "1999-12-31T23:59:59Z"]),
    "byte": st.sampled_from(["", "YQ==", "YWJj"]),
}


def values(structure: Structure, depth: int = 5) -> st.SearchStrategy[Any]:
    """Well-typed values, with all the required fields that are not too deep."""
    match structure.shape:
        case "object":
            return _objects(structure, depth)
        case "array":
            return st.lists(_inner(structure, depth), max_size=2 if depth > 0 else 0)
        case "map":
            return st.dictionaries(_NAMES, _inner(structure, depth), max_size=2 if depth > 0 else 0)
    if structure.shape == "any" and structure.items is not None:  # a schema, or something else
        return _inner(structure, depth)
    if structure.go_type.endswith("MicroTime"):
        return st.just("2024-02-29T10:20:30.123456Z")
    if structure.enum:
        return st.sampled_from(structure.enum)
    return _FORMATTED.get(structure.format, _SCALARS[structure.shape])


def _inner(structure: Structure, depth: int) -> st.SearchStrategy[Any]:
    assert structure.items is not None
    return values(structure.items, depth - 1)


@st.composite
def _objects(draw: st.DrawFn, structure: Structure, depth: int) -> dict[str, Any]:
    if depth <= 0 or not structure.fields:
        return {}
    names = draw(st.lists(st.sampled_from(sorted(structure.fields)), max_size=4, unique=True))
    drawn = {name: draw(values(structure.fields[name], depth - 1)) for name in names}
    return {name: value for name, value in drawn.items() if value or name not in structure.omitted}


@st.composite
def spoiled(draw: st.DrawFn, structure: Structure) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Give an object with fields that do not exist, the same one without them, and their paths."""
    clean = draw(_objects(structure, 5))
    paths: list[str] = []
    dirty = _spoil(draw, clean, structure, "", paths)
    return dirty, clean, paths


def _spoil(draw: st.DrawFn, value: Any, structure: Structure, path: str, paths: list[str]) -> Any:
    if structure.shape == "object":
        made = {
            name: _spoil(draw, item, structure.fields[name], f"{path}.{name}", paths) for name, item in value.items()
        }
        if draw(st.integers(0, 3)) == 0:
            made["noSuchField"] = draw(_SCALARS["any"])
            paths.append(f"{path}.noSuchField".removeprefix("."))
        return made
    if structure.items is not None and structure.shape == "any":
        return _spoil(draw, value, structure.items, path, paths)
    if structure.items is not None and structure.shape == "array":
        return [_spoil(draw, item, structure.items, f"{path}[{index}]", paths) for index, item in enumerate(value)]
    if structure.items is not None:
        return {key: _spoil(draw, item, structure.items, f"{path}.{key}", paths) for key, item in value.items()}
    return value
