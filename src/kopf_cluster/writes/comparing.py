"""
Objects as sets of fields: the fields of an object, the differences of two objects, the merge of one into another.

All three walk the values along a topology, which tells single values from composite ones.
The rules are those documented for Server-Side Apply ("Merge strategy") and for structured-merge-diff.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

from kopf_cluster.codec import same
from kopf_cluster.kinds.topologies import DEDUCED, Topology
from kopf_cluster.writes.fieldsets import (
    FieldSet,
    Path,
    Tree,
    field_element,
    insert,
    is_owned,
    key_element,
    path_text,
    value_element,
    whole,
)

Items: TypeAlias = dict[str, list[Any]]


class SchemaMismatch(ValueError):
    """An applied configuration does not fit in the schema, or has ambiguous items."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path_text(path)}: {what}" if path else what)


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def fields_of(value: Mapping[str, Any], topology: Topology) -> FieldSet:
    """Return the fields of an applied configuration, or raise `SchemaMismatch` if it does not fit in the schema.

    Fields that are declared by name and have contents are not in the set themselves, in contrast to keys of maps and
    items of lists.
    """
    return FieldSet(_map_fields(value, topology, ()))


def _map_fields(value: Mapping[str, Any], topology: Topology, path: Path) -> Tree:
    tree: Tree = {}
    for name, item in value.items():
        element = field_element(name)
        sub = topology.field(name)
        if sub is None:
            raise SchemaMismatch((*path, element), "field not declared in schema")
        node = _fields(item, sub, (*path, element))
        if not topology.is_named(name):
            tree[element] = whole(node)
        elif node or not _is_container(item, sub):
            tree[element] = node
    return tree


def _fields(value: Any, topology: Topology, path: Path) -> Tree:
    if isinstance(value, dict):
        return {} if topology.map_type == "atomic" else _map_fields(value, topology, path)
    if not isinstance(value, list) or topology.list_type == "atomic":
        return {}
    tree: Tree = {}
    for index, item in enumerate(value):
        element = _strict_element(item, index, topology, path)
        if element in tree:
            raise SchemaMismatch((*path, element), "duplicate entries for key")
        tree[element] = whole(_fields(item, topology.items(), (*path, element)))
    return tree


def _is_container(value: Any, topology: Topology) -> bool:
    """Return whether the value is nothing but its contents. An empty map is a value of its own."""
    if isinstance(value, list):
        return topology.list_type != "atomic"
    return isinstance(value, dict) and bool(value) and topology.map_type == "granular"


def _strict_element(item: Any, index: int, topology: Topology, path: Path) -> str:
    where = f"element {index}: associative list"
    if topology.list_type == "map":
        if not isinstance(item, dict):
            raise SchemaMismatch(path, f"{where} with keys may not have non-map elements")
        for key, default in topology.keys.items():
            if key not in item and default is None:
                raise SchemaMismatch(
                    path,
                    f'{where} with keys has an element that omits key field "{key}" (and doesn\'t have default value)',
                )
    elif item is None or isinstance(item, (dict, list)):
        raise SchemaMismatch(path, f"{where} without keys has an element that is not a scalar")
    return _element(item, topology)


def _element(item: Any, topology: Topology) -> str:
    """Name an item of a set or of a keyed list; stored ones can be of any form if they are older than the schema."""
    if topology.list_type == "map" and isinstance(item, dict):
        keys = {key: item.get(key, default) for key, default in topology.keys.items()}
        return key_element({key: value for key, value in keys.items() if value is not None})
    return value_element(item)


def index_items(values: list[Any], topology: Topology) -> Items:
    """Return the items of a set or of a keyed list by their path elements; more than one if there are duplicates."""
    items: Items = {}
    for value in values:
        items.setdefault(_element(value, topology), []).append(value)
    return items


def all_fields(value: Any, topology: Topology) -> Tree:
    """Return the element of a value that has just appeared: with everything in it, containers included."""
    if isinstance(value, dict) and topology.map_type == "granular":
        return whole(
            {field_element(name): all_fields(item, topology.field(name) or DEDUCED) for name, item in value.items()}
        )
    if isinstance(value, list) and topology.list_type != "atomic":
        return whole(
            {element: all_fields(items[0], topology.items()) for element, items in index_items(value, topology).items()}
        )
    return {}


def compare(old: Mapping[str, Any], new: Mapping[str, Any], topology: Topology) -> Difference:
    """Return what differs. Parts that the objects share (the very same dicts and lists) are not looked into."""
    comparison = _Comparison()
    comparison.compare_maps(old, new, topology, ())
    return Difference(FieldSet(comparison.added), FieldSet(comparison.modified), FieldSet(comparison.removed))


class _Comparison:
    def __init__(self) -> None:
        self.added: Tree = {}
        self.modified: Tree = {}
        self.removed: Tree = {}

    def compare_maps(self, old: Mapping[str, Any], new: Mapping[str, Any], topology: Topology, path: Path) -> None:
        for name, value in new.items():
            if name not in old:
                insert(self.added, (*path, field_element(name)), all_fields(value, topology.field(name) or DEDUCED))
            elif value is not old[name]:
                self._compare(old[name], value, topology.field(name) or DEDUCED, (*path, field_element(name)))
        for name, value in old.items():
            if name not in new:
                insert(self.removed, (*path, field_element(name)), all_fields(value, topology.field(name) or DEDUCED))

    def _compare(self, old: Any, new: Any, topology: Topology, path: Path) -> None:
        if isinstance(old, dict) and isinstance(new, dict) and topology.map_type == "granular":
            self.compare_maps(old, new, topology, path)
        elif isinstance(old, list) and isinstance(new, list) and topology.list_type != "atomic":
            self._compare_lists(old, new, topology, path)
        elif not same(old, new):
            self._replace(old, new, topology, path)

    def _compare_lists(self, old: list[Any], new: list[Any], topology: Topology, path: Path) -> None:
        olds, news = index_items(old, topology), index_items(new, topology)
        for element, values in news.items():
            place = (*path, element)
            if element not in olds:
                insert(self.added, place, all_fields(values[0], topology.items()))
            elif len(values) == len(olds[element]) == 1:
                self._compare(olds[element][0], values[0], topology.items(), place)
            elif not same(values, olds[element]):
                self._replace(olds[element][0], values[0], topology.items(), place)
        for element, values in olds.items():
            if element not in news:
                insert(self.removed, (*path, element), all_fields(values[0], topology.items()))

    def _replace(self, old: Any, new: Any, topology: Topology, path: Path) -> None:
        """Note a replaced value, maybe of another form, whose old contents are gone."""
        insert(self.modified, path, all_fields(new, topology))
        inside = {element: node for element, node in all_fields(old, topology).items() if element != "."}
        if inside:
            insert(self.removed, path, inside)


def merge(live: Any, applied: Any, topology: Topology) -> Any:
    """Merge an applied configuration into the live state; the result shares untouched parts with the live state."""
    if isinstance(live, dict) and isinstance(applied, dict) and topology.map_type == "granular":
        result = dict(live)
        for name, value in applied.items():
            result[name] = merge(live[name], value, topology.field(name) or DEDUCED) if name in live else value
        return result
    if isinstance(live, list) and isinstance(applied, list) and topology.list_type != "atomic":
        return _merge_lists(index_items(live, topology), index_items(applied, topology), topology)
    return applied


def _merge_lists(live: Items, applied: Items, topology: Topology) -> list[Any]:
    """The applied items go in their order; the items that are only in the live list keep to their places in it."""
    result: list[Any] = []
    order = list(live)
    passed = 0
    for element, values in applied.items():
        while passed < len(order) and order[passed] not in applied:
            result.extend(live[order[passed]])
            passed += 1
        known = live.get(element)
        result.append(merge(known[0], values[0], topology.items()) if known and len(known) == 1 else values[0])
        if passed < len(order) and order[passed] == element:
            passed += 1
    for element in order[passed:]:
        if element not in applied:
            result.extend(live[element])
    return result


def remove(value: Mapping[str, Any], unwanted: FieldSet, kept: FieldSet, topology: Topology) -> dict[str, Any]:
    """Remove the unwanted fields, unless they or anything inside must be kept."""
    return _remove_from_map(value, unwanted.tree, kept.tree, topology)


def _remove_from_map(value: Mapping[str, Any], unwanted: Tree, kept: Tree, topology: Topology) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, item in value.items():
        element = field_element(name)
        node = unwanted.get(element)
        if node is None:
            result[name] = item
        elif element in kept or not (is_owned(node) or topology.is_named(name)):
            result[name] = _remove(item, node, kept.get(element, {}), topology.field(name) or DEDUCED)
    return result


def _remove(value: Any, unwanted: Tree, kept: Tree, topology: Topology) -> Any:
    if isinstance(value, dict) and topology.map_type == "granular":
        return _remove_from_map(value, unwanted, kept, topology)
    if not isinstance(value, list) or topology.list_type == "atomic":
        return value
    result: list[Any] = []
    for item in value:
        element = _element(item, topology)
        node = unwanted.get(element)
        if node is None:
            result.append(item)
        elif element in kept or not is_owned(node):
            result.append(_remove(item, node, kept.get(element, {}), topology.items()))
    return result
