"""
Sets of fields, as they are written in ``metadata.managedFields``: the form ``FieldsV1``.

A set is kept as the very JSON it is written in: a tree of path elements, where an element is ``f:<name>`` for
a field, ``k:<keys>`` for an item of a keyed list, ``v:<value>`` for an item of a set, ``i:<index>`` for a position.
An element with nothing inside belongs to the set; one with something inside belongs to it only if it also has
a dot inside. So nothing is converted on reading, and an operation costs as much as the smaller set has fields.

The form is that of KEP-555 "Server-Side Apply" and of the API reference of ``FieldsV1``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

Tree: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

_SELF: Final = "."
_RANKS: Final = {"f:": 0, "k:": 1, "v:": 2, "i:": 3}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSet:
    """An immutable set of fields. The trees of several sets share their parts: never modify them."""

    tree: Tree = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> FieldSet:
        """Read a set from ``fieldsV1``, or raise `ValueError` if it is not one."""
        return cls(_read_children(value))

    def to_json(self) -> Tree:
        """Return the JSON with its elements in the order of the API server."""
        return _sort(self.tree)

    def __bool__(self) -> bool:
        return bool(self.tree)

    def __or__(self, other: FieldSet) -> FieldSet:
        if not other.tree or self.tree is other.tree:
            return self
        return FieldSet(_unite_children(self.tree, other.tree)) if self.tree else other

    def __sub__(self, other: FieldSet) -> FieldSet:
        return self._combine(other, _subtract) if other.tree else self

    def __and__(self, other: FieldSet) -> FieldSet:
        return FieldSet(_intersect_children(self.tree, other.tree))

    def without(self, other: FieldSet) -> FieldSet:
        """Return the set without the fields of the other set and everything inside them."""
        return self._combine(other, _cut) if other.tree else self

    def _combine(self, other: FieldSet, operation: Callable[[Tree, Tree], Tree | None]) -> FieldSet:
        result = dict(self.tree)
        for element, node in other.tree.items():
            if element in result:
                rest = operation(result[element], node)
                if rest is None:
                    del result[element]
                else:
                    result[element] = rest
        return FieldSet(result)

    def __contains__(self, path: Path) -> bool:
        node: Tree | None = self.tree
        for element in path:
            node = node.get(element) if node is not None else None
        return bool(path) and node is not None and is_owned(node)

    def paths(self) -> Iterator[Path]:
        """Return all the fields: on each level, first the members of the set, then the inner fields."""
        return _walk(self.tree, ())


def is_owned(node: Tree) -> bool:
    """Return whether the element itself belongs to the set, not only something inside."""
    return not node or _SELF in node


def insert(tree: Tree, path: Path, node: Tree) -> None:
    """Add a part under the path, in place. The tree must not be shared yet, and must have nothing there."""
    *parents, last = path
    for element in parents:
        if element not in tree:
            tree = tree.setdefault(element, {})
        else:
            tree = tree[element]
            if not tree:
                tree[_SELF] = {}  # it was a member with nothing inside, and it remains a member
    if tree.get(last):
        if is_owned(node):
            tree[last][_SELF] = {}
    else:
        tree[last] = node


def whole(children: Tree) -> Tree:
    """Make an element that belongs to the set itself, besides what is inside."""
    return {_SELF: {}, **children} if children else {}


def _unite_children(left: Tree, right: Tree) -> Tree:
    result = dict(left)
    for element, node in right.items():
        if element != _SELF:
            result[element] = _unite(left[element], node) if element in left else node
    return result


def _unite(left: Tree, right: Tree) -> Tree:
    if left is right:
        return left
    result = _unite_children(left, right)
    if result and (is_owned(left) or is_owned(right)):
        result[_SELF] = {}
    return result


def _subtract(left: Tree, right: Tree) -> Tree | None:
    return _finish(_reduce(left, right, _subtract), is_owned(left) and not is_owned(right))


def _cut(left: Tree, right: Tree) -> Tree | None:
    return None if is_owned(right) else _finish(_reduce(left, right, _cut), is_owned(left))


def _reduce(left: Tree, right: Tree, operation: Callable[[Tree, Tree], Tree | None]) -> Tree:
    """Return the children of a node after the operation on the common ones; drop children that become none."""
    result: Tree = {}
    for element, node in left.items():
        rest = operation(node, right[element]) if element in right else node
        if element != _SELF and rest is not None:
            result[element] = rest
    return result


def _intersect_children(left: Tree, right: Tree) -> Tree:
    small, large = (left, right) if len(left) <= len(right) else (right, left)
    result: Tree = {}
    for element, node in small.items():
        if element != _SELF and element in large and (common := _intersect(node, large[element])) is not None:
            result[element] = common
    return result


def _intersect(left: Tree, right: Tree) -> Tree | None:
    return _finish(_intersect_children(left, right), is_owned(left) and is_owned(right))


def _finish(children: Tree, owned: bool) -> Tree | None:
    if owned:
        return whole(children)
    return children or None


def _rank(element: str) -> tuple[int, Any]:
    kind, text = element[:2], element[2:]
    return _RANKS[kind], int(text) if kind == "i:" else text


def _walk(tree: Tree, prefix: Path) -> Iterator[Path]:
    elements = sorted((element for element in tree if element != _SELF), key=_rank)
    for element in elements:
        if is_owned(tree[element]):
            yield (*prefix, element)
    for element in elements:
        yield from _walk(tree[element], (*prefix, element))


def _sort(tree: Tree) -> Tree:
    elements = sorted(tree)  # as texts, they are in the order of their ranks, too; only positions are not
    if any(element.startswith("i:") for element in elements):
        elements.sort(key=lambda element: (-1, "") if element == _SELF else _rank(element))
    return {element: _sort(node) if (node := tree[element]) else {} for element in elements}


def _read_children(value: Any) -> Tree:
    if not isinstance(value, dict):
        raise ValueError(f"a set of fields must be an object, not {type(value).__name__}")
    return {_read_element(element): _read(node) for element, node in value.items() if element != _SELF}


def _read(value: Any) -> Tree:
    children = _read_children(value)
    return whole(children) if is_owned(value) else children


def _read_element(element: str) -> str:
    """Bring an element into the only form that it is compared in: compact JSON with sorted keys."""
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return element
    if kind not in _RANKS:
        raise ValueError(f"unknown path element {element!r} in a set of fields")
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError(f"wrong path element {element!r} in a set of fields: not a JSON value") from None
    if (kind == "k:" and not (isinstance(value, dict) and value)) or (kind == "i:" and type(value) is not int):
        raise ValueError(f"wrong path element {element!r} in a set of fields")
    return kind + _as_text(value)


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def field_element(name: str) -> str:
    return f"f:{name}"


def key_element(keys: dict[str, Any]) -> str:
    return f"k:{_as_text(keys)}"


def value_element(value: Any) -> str:
    return f"v:{_as_text(value)}"


def path_text(path: Path) -> str:
    """Show a path as the API server does in its messages, e.g. ``.spec.containers[name="main"].image``."""
    return "".join(map(_element_text, path))


def _element_text(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    if kind == "k:":
        return f"[{','.join(f'{key}={_as_text(value)}' for key, value in json.loads(text).items())}]"
    return f"[{text}]"
