"""
Changes of definitions: either harmless, or breaking for existing objects and clients.

A harmless change accepts all previously accepted objects, with the same meaning. All other changes are breaking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

JSON = Mapping[str, Any]


class CRDChange(NamedTuple):
    """One difference of two definitions."""

    is_breaking: bool
    path: str
    """The place, e.g. ``webapps.example.com/v1: spec.replicas``."""
    text: str


_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_RESTRICTIONS = ("pattern", "format", "multipleOf", "exclusiveMaximum", "x-kubernetes-embedded-resource")
"""With any of these, the schema accepts fewer values."""
_MEANINGS = ("default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
_WIDER_TYPES = {("integer", "number"), ("integer", "int-or-string"), ("string", "int-or-string")}
_FLAGS = ("nullable", "x-kubernetes-preserve-unknown-fields")


def compare(old: Iterable[JSON], new: Iterable[JSON]) -> list[CRDChange]:
    """List the changes between the definitions, except for their conversions."""
    before, after = ({item["metadata"]["name"]: item for item in items} for items in (old, new))
    changes = [CRDChange(True, name, "the definition is removed") for name in before if name not in after]
    changes += [CRDChange(False, name, "the definition is added") for name in after if name not in before]
    for name in after:
        if name in before:
            changes += _compare_definitions(name, before[name]["spec"], after[name]["spec"])
    return changes


def _compare_definitions(name: str, old: JSON, new: JSON) -> Iterator[CRDChange]:
    for field in ("scope", "group"):
        if old.get(field) != new.get(field):
            yield CRDChange(True, name, f"the {field} is {new.get(field)}, not {old.get(field)}")
    for field in sorted({*old["names"], *new["names"]}):
        one, two = old["names"].get(field), new["names"].get(field)
        if one != two:
            is_kept = isinstance(two, list) and {*(one or ())} <= {*two}
            yield CRDChange(not is_kept, name, f"the {field} of its names is {two}, not {one}")
    before, after = ({item["name"]: item for item in spec["versions"]} for spec in (old, new))
    for version in [*before, *(item for item in after if item not in before)]:
        path = f"{name}/{version}"
        if version not in after:
            yield CRDChange(True, path, "the version is removed")
        elif version not in before:
            yield CRDChange(False, path, "the version is added")
        else:
            yield from _compare_versions(path, before[version], after[version])


def _compare_versions(path: str, old: JSON, new: JSON) -> Iterator[CRDChange]:
    if old.get("served") != new.get("served"):
        yield CRDChange(not new.get("served"), path, f"served is {new.get('served')}")
    for field in ("storage", "deprecated", "deprecationWarning", "additionalPrinterColumns"):
        if old.get(field) != new.get(field):
            yield CRDChange(False, path, f"{field} is {new.get(field)}, not {old.get(field)}")
    for field in ("subresources", "selectableFields"):
        one, two = old.get(field) or {}, new.get(field) or {}
        if one != two:
            is_kept = all(item in two for item in one) and (
                isinstance(two, list) or all(one[key] == two[key] for key in one)
            )
            yield CRDChange(not is_kept, path, f"{field} is {two}, not {one}")
    schemas = [item["schema"]["openAPIV3Schema"] for item in (old, new)]
    yield from ((CRDChange(item[0], f"{path}: {item[1]}", item[2])) for item in _compare_schemas("", *schemas))


def _compare_schemas(path: str, old: JSON, new: JSON) -> Iterator[tuple[bool, str, str]]:
    here = path or "the object"
    one, two = _get_type(old), _get_type(new)
    if one != two:
        yield (one, two) not in _WIDER_TYPES, here, f"the type is {two}, not {one}"
    yield from ((is_breaking, here, text) for is_breaking, text in _compare_values(old, new))
    before, after = old.get("properties") or {}, new.get("properties") or {}
    was_required, required = old.get("required") or [], new.get("required") or []
    for name in [*before, *(item for item in after if item not in before)]:
        inner = f"{path}.{name}" if path else name
        if name not in after:
            yield True, inner, "the field is removed"
            continue
        if name not in before:
            yield name in required, inner, "the field is added" + (", and is required" if name in required else "")
            continue
        if (name in required) != (name in was_required):
            yield name in required, inner, "it is required" if name in required else "it is not required anymore"
        yield from _compare_schemas(inner, before[name], after[name])
    for field, mark in (("items", "[]"), ("additionalProperties", "[…]")):
        if isinstance(old.get(field), Mapping) and isinstance(new.get(field), Mapping):
            yield from _compare_schemas(f"{path}{mark}", old[field], new[field])
        elif old.get(field) != new.get(field):
            yield old.get(field) is not None or one == two, here, f"{field} is {new.get(field)}, not {old.get(field)}"


def _get_type(schema: JSON) -> str:
    return "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema.get("type") or "anything"


def _compare_values(old: JSON, new: JSON) -> Iterator[tuple[bool, str]]:
    """Compare the schemas of one value, without its inner values."""
    rules = [[*map(str, item.get("x-kubernetes-validations") or ())] for item in (old, new)]
    if rules[0] != rules[1]:
        yield not {*rules[1]} <= {*rules[0]}, "the validation rules are changed"
    names = (*_FLAGS, *_LOWER_BOUNDS, *_UPPER_BOUNDS, *_RESTRICTIONS, *_MEANINGS, "enum", "description")
    for name in names:
        one, two = old.get(name), new.get(name)
        if one != two or (name == "default" and (name in old) != (name in new)):
            text = f"{name} is {two!r}, not {one!r}" if two is not None else f"{name} {one!r} is removed"
            yield _is_breaking(name, one, two), text if name != "description" else "the description is changed"


def _is_breaking(name: str, one: Any, two: Any) -> bool:
    if name == "enum":
        return two is not None and (one is None or not all(item in two for item in one))
    if name in _FLAGS:
        return not two
    if name in _LOWER_BOUNDS:
        return two is not None and (one is None or two > one)
    if name in _UPPER_BOUNDS:
        return two is not None and (one is None or two < one)
    if name in _RESTRICTIONS:
        return two is not None
    return name in _MEANINGS and (name != "default" or one is not None)
