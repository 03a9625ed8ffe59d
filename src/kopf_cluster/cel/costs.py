"""
The maximal cost of an expression in the units of kube-apiserver, in which an access to a field costs one.

The costs follow the Go implementation of the language, with the functions that Kubernetes adds. The estimator
walks the syntax tree of a compiled expression, a protobuf message (``cel/expr/checked.proto``). It knows the maximal
size of each value: from its schema, or from the expression that makes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kopf_cluster.cel.values import Schema, escape, fields_of, most_elements
from kopf_cluster.protobuf.wire import Raw, read_fields

UNKNOWN: Final = 2**64 - 1
"""More than everything."""

_TRAVERSAL: Final = 0.1  # for each character
_PATTERN: Final = 0.25  # for each character of a regular expression
_LIST, _MAP = 10, 30  # to make one

Node: TypeAlias = dict[int, list[Raw]]


class Value(NamedTuple):
    """The knowledge about a value."""

    kind: str = ""
    """``string``, ``list``, ``map``, ``other``; empty if unknown."""
    size: int = UNKNOWN
    schema: Schema | None = None
    root: bool = False
    item: Value | None = None
    """The items of a list or a map that the expression makes."""
    text: str = ""
    """The value of a constant, which gives its minimal size, too."""


_FLAG: Final = Value("other", 1)
_OPAQUE: Final = Value("map", 1)  # a quantity, an address, ...: see `functions`
# The primitive and the well-known types, as numbered in the message: strings and bytes, timestamps and durations.
_TEXTS: Final = (5, 6)
_TIMES: Final = (2, 3)
_KINDS: Final = {"string": "string", "array": "list", "integer": "other", "number": "other", "boolean": "other"}


def estimate(serialized: bytes, schema: Schema, *, root: bool) -> int:
    """Estimate a compiled expression about `self`, and maybe `oldSelf`, of this schema."""
    checked = _open(_bytes(_open(serialized)[2][0]))
    return _Estimator(_of_schema(schema, root=root), checked).visit(_bytes(checked[4][0]))[0]


def _open(raw: bytes) -> Node:
    node: Node = {}
    for number, _, value in read_fields(raw):
        node.setdefault(number, []).append(value)
    return node


def _bytes(raw: Raw) -> bytes:
    if isinstance(raw, int):
        raise TypeError("a message is expected in the syntax tree, not a number")
    return raw


def _text(node: Node, number: int) -> str:
    return _bytes(node[number][-1]).decode() if number in node else ""


def _of_schema(schema: Schema, *, root: bool = False) -> Value:
    if schema.get("x-kubernetes-int-or-string"):
        return Value("", most_elements(schema), schema)
    is_map = isinstance(schema.get("additionalProperties"), Mapping)
    kind = "map" if is_map else _KINDS.get(schema.get("type") or "", "other")
    return Value(kind, most_elements(schema), schema, root or bool(schema.get("x-kubernetes-embedded-resource")))


def _traversal(size: int, factor: float = _TRAVERSAL) -> int:
    return math.ceil(size * factor)


def _union(one: Value | None, other: Value | None) -> Value:
    """Return the knowledge about a value that is one or the other."""
    if one is None or other is None:
        return one or other or Value()
    return Value(
        one.kind if one.kind == other.kind else "",
        max(one.size, other.size),
        one.schema if one.schema is other.schema else None,
        one.root,
        _union_items(one, other),
    )


def _union_items(one: Value, other: Value) -> Value | None:
    return _union(one.item, other.item) if one.item or other.item else None


class _Estimator:
    """Walks one tree, and returns the cost of each node with the knowledge about its value."""

    def __init__(self, root: Value, checked: Node) -> None:
        self._root = root
        self._names: dict[str, Value] = {}
        self._types: dict[Raw, Node] = {}
        for entry in checked.get(3, ()):
            pair = _open(_bytes(entry))
            self._types[pair[1][0]] = _open(_bytes(pair[2][0]))

    def visit(self, raw: bytes) -> tuple[int, Value]:
        node = _open(raw)
        for number, form in _FORMS.items():
            if number in node:
                cost, value = form(self, _open(_bytes(node[number][-1])))
                return cost, value if value.kind else self._typed(node[2][0], value)
        return 0, Value()

    def _typed(self, identity: Raw, value: Value) -> Value:
        """Add the knowledge of the compiler about the type."""
        known = self._types.get(identity, {})
        if 3 in known and known[3][0] in _TEXTS:
            return value._replace(kind="string")
        if 3 in known or known.get(5, [0])[0] in _TIMES:
            return _FLAG
        return value._replace(kind="list" if 6 in known else "map" if 7 in known else "")

    def _constant(self, node: Node) -> tuple[int, Value]:
        if 6 in node or 7 in node:
            text = _text(node, 6)
            return 0, Value("string", len(text) if 6 in node else len(_bytes(node[7][-1])), text=text)
        return 0, _FLAG

    def _name(self, node: Node) -> tuple[int, Value]:
        return 1, self._names.get(_text(node, 1), self._root)  # as in Go: names of types, too, are taken for the root

    def _select(self, node: Node) -> tuple[int, Value]:
        cost, operand = self.visit(_bytes(node[1][-1]))
        if 3 in node:  # it only tests the presence
            return cost, _FLAG
        return cost + 1, _field(operand, _text(node, 2))

    def _make_list(self, node: Node) -> tuple[int, Value]:
        made = [self.visit(_bytes(item)) for item in node.get(1, ())]
        item = None
        for _, value in made:
            item = _union(item, value)
        return _LIST + sum(cost for cost, _ in made), Value("list", len(made), item=item)

    def _make_map(self, node: Node) -> tuple[int, Value]:
        entries = [_open(_bytes(entry)) for entry in node.get(2, ())]
        costs = [self.visit(_bytes(entry[number][-1]))[0] for entry in entries for number in (3, 4) if number in entry]
        return _MAP + sum(costs), Value("map", len(entries))

    def _call(self, node: Node) -> tuple[int, Value]:
        visited = [self.visit(_bytes(raw)) for raw in (*node.get(1, ()), *node.get(3, ()))]
        cost, values, name = sum(cost for cost, _ in visited), [value for _, value in visited], _text(node, 2)
        if name == "_?_:_":
            (condition, _), (one, first), (other, second) = visited
            return condition + max(one, other), _union(first, second)
        own, result = _COSTS[name](values) if name in _COSTS else (1, Value())
        return cost + own, result

    def _comprehend(self, node: Node) -> tuple[int, Value]:
        """Loops; and variables, which are loops over nothing."""

        def visit(number: int) -> tuple[int, Value]:
            return self.visit(_bytes(node[number][-1]))

        names = dict(self._names)
        (ranged, items), (begun, accumulated) = visit(2), visit(4)
        self._names[_text(node, 3)] = accumulated
        self._names[_text(node, 1)] = Value("string", 0) if items.kind == "map" else _item(items)
        if 8 in node:
            self._names[_text(node, 8)] = _item(items)
        looped, (stepped, step) = visit(5)[0], visit(6)
        ended, result = visit(7)
        self._names = names
        if accumulated.kind == "list":
            result = Value("list", items.size, item=step.item)
        return ranged + begun + ended + items.size * (looped + stepped), result


_FORMS: Final[Mapping[int, Callable[[_Estimator, Node], tuple[int, Value]]]] = {
    3: _Estimator._constant,
    4: _Estimator._name,
    5: _Estimator._select,
    6: _Estimator._call,
    7: _Estimator._make_list,
    8: _Estimator._make_map,
    9: _Estimator._comprehend,
}


def _field(value: Value, name: str) -> Value:
    schema = value.schema
    if schema is None:
        return Value()
    if value.kind == "map":  # values that are not taken by their index are not looked up
        kind = _item(value).kind
        return _FLAG if kind == "other" else Value(kind)
    for field, sub in fields_of(schema, root=value.root).items():
        if escape(field) == name:
            return _of_schema(sub)
    return Value()


def _item(value: Value) -> Value:
    """Return the knowledge about the items of a list, or the values of a map."""
    if value.item is not None or value.schema is None:
        return value.item or Value()
    inner = value.schema.get("items") if value.kind == "list" else value.schema.get("additionalProperties")
    return _of_schema(inner) if isinstance(inner, Mapping) else Value()


# ------------------------------------------------------------------------------------------ functions

_Result: TypeAlias = tuple[int, Value]


def _order(values: Sequence[Value]) -> _Result:
    is_other = any(value.kind == "other" for value in values)
    return 1 if is_other else max(1, _traversal(min(values[0].size, values[1].size))), _FLAG


def _add(values: Sequence[Value]) -> _Result:
    one, other = values
    kind, size = one.kind or other.kind, one.size + other.size
    if kind == "other":
        return 1, _FLAG
    if kind == "list":
        return 1, Value("list", size, item=_union_items(one, other))
    return max(1, _traversal(size)), Value(kind, size)


def _match(values: Sequence[Value]) -> int:
    return _traversal(values[0].size + 1) * _traversal(values[1].size, _PATTERN)


def _look_through(values: Sequence[Value]) -> _Result:
    items = values[0]
    if items.kind == "string":
        return _traversal(items.size), Value()
    item = _item(items)
    return items.size * (1 + (_traversal(item.size) if item.kind == "string" else 0)), item


def _replace(values: Sequence[Value]) -> _Result:
    text, old, new = values[:3]
    if not old.text:
        size = (text.size + 1) * new.size + text.size
    else:
        size = text.size if new.size <= len(old.text) else math.ceil(text.size / len(old.text)) * new.size
    return _traversal(text.size, 2 * _TRAVERSAL), Value("string", size)


def _join(values: Sequence[Value]) -> _Result:
    items = values[0]
    between = values[1].size * max(items.size - 1, 0) if len(values) > 1 else 0
    size = items.size * _item(items).size + between
    return _traversal(size), Value("string", size)


def _sets(factor: int) -> Callable[[Sequence[Value]], _Result]:
    return lambda values: (1 + factor * values[0].size * values[1].size, _FLAG)


# Each gives the cost of the call itself, and the knowledge about its result.
_COSTS: Final[Mapping[str, Callable[[Sequence[Value]], _Result]]] = {
    **dict.fromkeys(("_&&_", "_||_"), lambda values: (0, _FLAG)),
    **dict.fromkeys(("_==_", "_!=_"), lambda values: (_traversal(min(values[0].size, values[1].size)), _FLAG)),
    **dict.fromkeys(("dyn", "value", "optional.of"), lambda values: (1, values[0])),
    **dict.fromkeys(("or", "orValue"), lambda values: (1, _union(values[0], values[1]))),
    **dict.fromkeys(("_[_]", "_[?_]"), lambda values: (1, _item(values[0]))),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _order),
    "_?._": lambda values: (1, _field(values[0], values[1].text)),
    "_+_": _add,
    "@in": lambda values: (1 if values[1].kind == "map" else values[1].size, _FLAG),
    "contains": lambda values: (_traversal(values[0].size) * _traversal(values[1].size), _FLAG),
    "matches": lambda values: (_match(values), _FLAG),
    **dict.fromkeys(("startsWith", "endsWith"), lambda values: (_traversal(values[1].size), _FLAG)),
    **dict.fromkeys(("find", "findAll"), lambda values: (_match(values), Value(size=values[0].size))),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _look_through),
    **dict.fromkeys(
        ("lowerAscii", "upperAscii", "substring", "trim"),
        lambda values: (_traversal(values[0].size), values[0]._replace(text="")),
    ),
    **dict.fromkeys(
        ("url", "ip", "cidr", "isIP", "isCIDR", "ip.isCanonical", "quantity", "isQuantity"),
        lambda values: (_traversal(values[0].size), _OPAQUE),
    ),
    **dict.fromkeys(("add", "sub", "masked"), lambda values: (1, _OPAQUE)),
    "replace": _replace,
    "split": lambda values: (_traversal(values[0].size, 2 * _TRAVERSAL), Value("list", values[0].size)),
    "join": _join,
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
}
