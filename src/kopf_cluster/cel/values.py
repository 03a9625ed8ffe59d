"""
Values of custom resources as the expressions of their schemas see them: their types, the names of their
fields, and how large they can be.

An expression sees only what the schema declares; fields with names that are not identifiers, or are words of
the language, have other names there. Source: "Common Expression Language in Kubernetes" ("Escaping", "Type
integration"), and "Validation rules" of "Extend the Kubernetes API with CustomResourceDefinitions". The sizes are as in
kube-apiserver: what no limit is told of, is as large as fits in a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = Mapping[str, Any]


class _Absent:
    """No value, as opposed to a null."""


ABSENT: Final = _Absent()

_RESERVED: Final = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
_ESCAPED: Final = re.compile(r"__|[-./]")
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final = {"string": "string", "integer": "int", "number": "double", "boolean": "bool"}
_TEXT: Final[Schema] = {"type": "string"}

_STANDARD: Final[Mapping[str, Schema]] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}
"""The visible fields of every object besides its schema."""


def escape(name: str) -> str | None:
    """Return the name of a field in expressions, or none if it cannot be accessed."""
    if name in _RESERVED:
        return f"__{name}__"
    escaped = _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name)
    return escaped if _IDENTIFIER.fullmatch(escaped) else None


def type_of(schema: Schema) -> str:
    """Return the type for the compiler. Objects with declared fields are checked by `find_undefined`."""
    if schema.get("nullable") or schema.get("x-kubernetes-int-or-string"):
        return "dyn"
    kind = schema.get("type") or ""
    if kind == "array":
        return f"list({type_of(schema.get('items') or {})})"
    values = schema.get("additionalProperties")
    if kind == "object" and isinstance(values, Mapping):
        return f"map(string,{type_of(values)})"
    return _SCALARS.get(kind, "dyn")


def fields_of(schema: Schema, *, root: bool = False) -> Mapping[str, Schema]:
    properties = schema.get("properties") or {}
    return {**properties, **_STANDARD} if root or schema.get("x-kubernetes-embedded-resource") else properties


def convert(value: Any, schema: Schema, *, root: bool = False) -> Any:
    """Return the value as an expression sees it."""
    if isinstance(value, dict):
        values = schema.get("additionalProperties")
        if isinstance(values, Mapping):
            return {name: convert(item, values) for name, item in value.items()}
        if schema.get("type") not in ("object", None):
            return value
        result = {}
        for name, sub in fields_of(schema, root=root).items():
            # A null is as good as nothing in objects.
            if value.get(name) is not None and (escaped := escape(name)) is not None:
                result[escaped] = convert(value[name], sub)
        return result
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [convert(item, items) for item in value]
    if schema.get("type") == "number" and type(value) is int:
        return float(value)
    if schema.get("type") == "integer" and isinstance(value, float):
        return int(value)
    return value


def align(old: Any, new: Any, schema: Schema) -> Any:
    """Bring the old items of sets and of keyed lists in the order of the new ones: it means nothing there."""
    if isinstance(old, dict) and isinstance(new, dict):
        values = schema.get("additionalProperties")
        fields = schema.get("properties") or {}
        return {
            name: align(item, new[name], fields.get(name) or (values if isinstance(values, Mapping) else {}))
            if name in new
            else item
            for name, item in old.items()
        }
    kind = schema.get("x-kubernetes-list-type")
    if not isinstance(old, list) or not isinstance(new, list) or kind not in ("set", "map"):
        return old
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    order = {item_key(item, keys): index for index, item in reversed(list(enumerate(new)))}
    result = sorted(old, key=lambda item: order.get(item_key(item, keys), len(order)))
    items = schema.get("items") or {}
    return [align(item, new[order[key]], items) if (key := item_key(item, keys)) in order else item for item in result]


def item_key(item: Any, keys: Any) -> Any:
    """By what an item of a set or of a keyed list is known."""
    if keys and isinstance(item, dict):
        return tuple(repr(item.get(key)) for key in keys)
    return repr(item)


def counterparts(new: list[Any], old: Any, schema: Schema) -> list[Any]:
    """Find the previous items of a list; only keyed lists can tell which items are the same."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return [ABSENT] * len(new)
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    known = {item_key(item, keys): item for item in old}
    return [known.get(item_key(item, keys), ABSENT) for item in new]


_LITERALS: Final = re.compile(
    r"""[rRbB]{0,2}(\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|//[^\n]*"""
)
_ACCESS: Final = re.compile(r"(?<![\w.])(self|oldSelf)((?:\.\??[A-Za-z_]\w*)+)(?=(\s*\()?)")
_OLD: Final = re.compile(r"(?<![\w.])oldSelf\b")


def without_literals(text: str) -> str:
    """Blank out strings and comments, so that only the code remains, at the same positions."""
    return _LITERALS.sub(lambda match: " " * len(match[0]), text)


def is_transition(rule: str) -> bool:
    return bool(_OLD.search(without_literals(rule)))


def find_undefined(rule: str, schema: Schema, *, root: bool, optional: bool) -> str | None:
    """Look for fields that the schema does not declare; return the compiler's messages, or none."""
    found: list[str] = []
    code = without_literals(rule)
    for match in _ACCESS.finditer(code):
        if optional and match[1] == "oldSelf":
            continue
        names = match[2][1:].split(".")
        if match[3] is not None:
            names.pop()  # it is a method
        wrong = _first_wrong([name.removeprefix("?") for name in names], schema, root)
        if wrong is not None:
            index, what = wrong
            position = match.start(2) + sum(len(name) + 1 for name in names[:index])
            if index == len(names) - 1 and code[: match.start()].rstrip().endswith("has("):
                position = code.rindex("(", 0, match.start())  # macros are blamed as a whole
            found.append(_point(rule, position, what))
    return "\n".join(found) or None


def _first_wrong(names: list[str], schema: Schema, root: bool) -> tuple[int, str] | None:
    for index, name in enumerate(names):
        kind, values = schema.get("type"), schema.get("additionalProperties")
        if kind == "object" and isinstance(values, Mapping):
            schema, root = values, False
            continue
        if kind != "object":
            return (index, f"type '{type_of(schema)}' does not support field selection") if kind else None
        fields = {escape(field): sub for field, sub in fields_of(schema, root=root).items()}
        if name not in fields:
            return index, f"undefined field '{name}'"
        schema, root = fields[name], False
    return None


def _point(text: str, position: int, what: str) -> str:
    line = text.count("\n", 0, position)
    column = position - (text.rfind("\n", 0, position) + 1)
    source = text.splitlines()[line]
    return f"ERROR: <input>:{line + 1}:{column + 1}: {what}\n | {source}\n | {'.' * column}^"


MAX_REQUEST: Final = 3 * 1024 * 1024

_LEAST: Final = {"boolean": 4, "integer": 1, "number": 1, "string": 2, "array": 2}
_LEAST_TEXTS: Final = {"duration": 3, "date": 12, "date-time": 21}
_MOST_TEXTS: Final = {"duration": 32, "date": 12, "date-time": 32}
_BYTES: Final = 4  # of one character, at most


def most_elements(schema: Schema) -> int:
    """Return how many characters, items, or entries there can be; zero for what has none."""
    kind = "string" if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    values = schema.get("additionalProperties")
    if kind == "string":
        return _most_characters(schema)
    if kind == "array":
        fitting = (MAX_REQUEST - 2) // (least_bytes(schema.get("items") or {}) + 1)
        return int(schema.get("maxItems", fitting))
    if kind == "object" and isinstance(values, Mapping):
        return int(schema.get("maxProperties", (MAX_REQUEST - 2) // (least_bytes(values) + 6)))
    return 0


def _most_characters(schema: Schema) -> int:
    form, longest = schema.get("format") or "", schema.get("maxLength")
    if form in _MOST_TEXTS:
        return _MOST_TEXTS[form]
    if longest is not None:
        return int(longest) * (1 if form == "byte" else _BYTES)
    if schema.get("enum"):
        return max(len(str(value)) for value in schema["enum"])
    return MAX_REQUEST - 2


def least_bytes(schema: Schema, *, root: bool = False) -> int:
    """Return how many bytes the smallest value takes in JSON."""
    kind = schema.get("type") or ""
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    if kind == "string":
        return _LEAST_TEXTS.get(schema.get("format") or "", _LEAST["string"])
    if kind != "object" or isinstance(schema.get("additionalProperties"), Mapping):
        return _LEAST.get(kind, 2)
    fields = fields_of(schema, root=root)
    needed = [name for name in schema.get("required") or () if name in fields and "default" not in fields[name]]
    return 2 + sum(len(name) + least_bytes(fields[name]) + 4 for name in needed)
