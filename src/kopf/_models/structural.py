"""
Structural schemas of typed classes, as in the definitions of custom resources.

The libraries of the types convert their constraints to JSON Schema. This module combines them: without references,
without keywords that Kubernetes does not know, and with the keywords that only Kubernetes knows.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import enum
import re
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from kopf._models.decoding import decode
from kopf._models.markers import Schema
from kopf._models.quantities import Duration, Quantity
from kopf._models.typed_fields import (
    MISSING,
    TypedField,
    annotate,
    ask_pydantic,
    describe_class,
    describe_fields,
    is_class,
    is_of_pydantic,
    list_fields,
    list_members,
    unwrap,
)
from kopf._values.model_mismatch import ModelMismatchError

JSON = dict[str, Any]

_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Collection)
_SETS = (set, frozenset, collections.abc.Set)
_MAPPINGS = (dict, collections.abc.Mapping)
_SCALARS: Mapping[Any, JSON] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "format": "byte"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"},
    Quantity: Quantity.SCHEMA,
    Duration: Duration.SCHEMA,
}
_CONSTRAINTS = frozenset(
    {
        *("description", "enum", "multipleOf", "pattern", "minLength", "maxLength", "minItems", "maxItems"),
        *("minProperties", "maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
_CURES: Mapping[Any, str] = {
    datetime.timedelta: "kopf.Duration",
    datetime.time: "str with a pattern",
    complex: "float",
}
_ANYTHING: JSON = {"x-kubernetes-preserve-unknown-fields": True}
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


class SchemaError(Exception):
    """A type has no structural schema. The text names the type, and a type to use instead."""

    def __init__(self, cls: type[Any], path: str, text: str) -> None:
        super().__init__(f"{cls.__name__}.{path}: {text}" if path else f"{cls.__name__}: {text}")
        self.cls = cls


def make_schema(hint: Any, owner: type[Any]) -> JSON:
    """
    Make the schema of a type in the class ``owner``.

    Raises :class:`SchemaError` if the type has no schema.
    """
    return _Maker((owner,), "").make(hint)


class _Maker:
    """Makes the schema of one type in its place."""

    def __init__(self, within: tuple[type[Any], ...], path: str) -> None:
        self._within = within
        """The classes around the type; the innermost one is the last."""
        self._path = path
        """The path in the innermost class."""

    def make(self, hint: Any) -> JSON:
        """Make the schema of the type."""
        plain, metadata = unwrap(hint)
        members = list_members(plain)
        rest = [item for item in members if item not in (types.NoneType, msgspec.UnsetType)]
        if len(members) > len(rest) and len(rest) == 1:
            schema = self.make(annotate(rest[0], metadata))
            if types.NoneType not in members:
                return schema
            # API servers look for nulls in the enumeration, too.
            allowed = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
            return {**schema, **allowed, "nullable": True}
        is_encoded = any(type(item).__name__ == "EncodedBytes" for item in metadata)
        if plain is bytes and is_of_pydantic(self._within[-1]) and not is_encoded:
            raise self._fail("pydantic takes the text for the bytes, but it is in base64; use pydantic.Base64Bytes.")
        schema = self._make(plain, rest)
        schema |= self._constrain(plain, metadata, schema)
        for marker in metadata:
            if isinstance(marker, Schema):
                if problem := _find_problem(marker, schema):
                    raise self._fail(problem)
                schema |= marker.render()
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("type", None)
        return schema

    def _make(self, plain: Any, members: list[Any]) -> JSON:
        origin, args = typing.get_origin(plain) or plain, typing.get_args(plain)
        if {*map(_name_json_type, members)} == {"integer", "string"} and len(members) == 2:
            return {"x-kubernetes-int-or-string": True}
        if len(members) > 1 and {*members} == {int, float}:
            return {"type": "number"}
        if is_class(origin):
            return self._make_object(plain)
        if origin is tuple and (len(args) != 2 or args[1] is not ...):
            raise self._fail(f"{plain} has no schema; use list[…], or a class with fields.")
        if origin in _LISTS:
            return {"type": "array", "items": self._inside("[]").make(args[0] if args else Any)}
        if origin in _SETS:
            return {"type": "array", "items": self._make_item(args), "x-kubernetes-list-type": "set"}
        if origin in _MAPPINGS:
            return self._make_map(args or (str, Any))
        if origin is Literal:
            return self._make_enum(args)
        if isinstance(origin, type) and issubclass(origin, enum.Enum):
            return self._make_enum(tuple(item.value for item in origin))
        if plain in (Any, object):
            return dict(_ANYTHING)
        if plain in _SCALARS:
            return dict(_SCALARS[plain])
        raise self._fail(f"{_name(plain)} has no schema; use {_suggest(plain, members)}.")

    def _make_item(self, args: tuple[Any, ...]) -> JSON:
        items = self._inside("[]").make(args[0] if args else str)
        if items.get("type") in (None, "object", "array"):
            raise self._fail('only scalars can be in sets; use list[…] with kopf.Schema(list_type="map", …).')
        return items

    def _make_map(self, args: tuple[Any, ...]) -> JSON:
        if _name_json_type(args[0]) != "string":
            raise self._fail(f"the keys of objects are strings, not {_name(args[0])}; use dict[str, …].")
        values = self._inside("[…]").make(args[1])
        return {"type": "object", **(_ANYTHING if values == _ANYTHING else {"additionalProperties": values})}

    def _make_enum(self, values: tuple[Any, ...]) -> JSON:
        kinds = {type(value) for value in values if value is not None}
        if len(kinds) != 1 or not kinds <= _JSON_TYPES.keys():
            raise self._fail("the values of an enumeration must be of one type: strings, or integers.")
        allowed = [value for value in values if value is not None]
        schema = {"type": _JSON_TYPES[kinds.pop()], "enum": [*values]}
        return schema if len(allowed) == len(values) else {**schema, "nullable": True}

    def _make_object(self, plain: Any) -> JSON:
        cls = typing.get_origin(plain) or plain
        if cls in self._within[1:]:
            raise self._fail(f"{cls.__name__} contains itself, but schemas are finite; use dict[str, Any] here.")
        if issubclass(cls, msgspec.Struct) and (cls.__struct_config__.array_like or cls.__struct_config__.tag):
            raise self._fail(
                f"{cls.__name__} is tagged or array-like, which schemas are not; use a plain msgspec.Struct."
            )
        maker = _Maker((*self._within, cls), "")
        descriptions = describe_fields(cls)
        try:
            fields = list_fields(plain)
        except NameError as e:
            raise maker._fail(f"{e}; declare it before the resource, in the same module.") from None
        except AttributeError as e:
            raise maker._fail(f"{e}.") from None
        properties = {item.name: maker._inside(item.name)._make_property(item, descriptions) for item in fields}
        schema: JSON = {"type": "object", "description": describe_class(cls), "properties": properties}
        if required := [item.name for item in fields if item.is_required]:
            schema["required"] = required
        return {name: value for name, value in schema.items() if value is not None}

    def _make_property(self, field: TypedField, descriptions: Mapping[str, str]) -> JSON:
        schema = self.make(field.hint)
        if field.default is not MISSING:
            try:
                decode(field.hint, field.default, name="its default", kind=repr(field.default))
            except ModelMismatchError as e:
                raise self._fail(f"the default value is wrong by its own type: {e}") from None
            if problem := _find_problem_of_default(field.default, schema):
                raise self._fail(problem)
        is_described = any(getattr(item, "description", None) for item in unwrap(field.hint).metadata)
        if field.attribute in descriptions and not is_described:
            schema = {**schema, "description": descriptions[field.attribute]}
        return schema if field.default is MISSING else {**schema, "default": field.default}

    def _constrain(self, plain: Any, metadata: tuple[Any, ...], schema: JSON) -> JSON:
        """Let the library of the innermost class convert the metadata for a value of this kind."""
        others = tuple(item for item in metadata if not isinstance(item, Schema))
        if not others:
            return {}
        shallow = {"array": list[Any], "object": dict[str, Any]}.get(schema.get("type", ""), plain)
        if shallow not in (list[Any], dict[str, Any]) and shallow not in _SCALARS:
            shallow = Any
        found = self._ask_library(str if shallow in (Quantity, Duration) else shallow, others)
        for name, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if name in found:
                found |= {bound: found[name], name: True}
        return {key: value for key, value in found.items() if key in _CONSTRAINTS or key.startswith("x-kubernetes-")}

    def _ask_library(self, shallow: Any, metadata: tuple[Any, ...]) -> JSON:
        is_for_pydantic = is_of_pydantic(self._within[-1])
        foreign = tuple(item for item in metadata if isinstance(item, msgspec.Meta))
        if is_for_pydantic and foreign:
            raise self._fail("msgspec.Meta is not for classes of pydantic, which ignore it; use pydantic.Field.")
        if is_for_pydantic:
            return ask_pydantic(shallow, metadata)
        return msgspec.json.schema(annotate(shallow, foreign))

    def _inside(self, name: str) -> _Maker:
        path = f"{self._path}.{name}" if self._path and not name.startswith("[") else f"{self._path}{name}"
        return _Maker(self._within, path)

    def _fail(self, text: str) -> SchemaError:
        return SchemaError(self._within[-1], self._path, text)


def _find_problem(marker: Schema, schema: JSON) -> str | None:
    """Find the problem of the marker at this type."""
    if marker.list_type and schema.get("type") != "array":
        return "list_type= is for lists only."
    if marker.list_type == "map" and not marker.list_map_keys:
        return 'list_type="map" needs list_map_keys=, by which its items are told apart.'
    items = schema.get("items", {})
    for key in marker.list_map_keys:
        item = items.get("properties", {}).get(key)
        if item is None:
            return f"there is no field {key!r} in the items, which list_map_keys= names."
        if key not in items.get("required", ()) and "default" not in item:
            return f"the field {key!r} is one of list_map_keys=, so it must be required or have a default."
    return None


def _find_problem_of_default(default: Any, schema: JSON) -> str | None:
    """Find the problem of a default value that fits the type, but that the cluster refuses."""
    if schema.get("format") == "byte" and default == "":
        return "the default value is empty, which API servers refuse for bytes; use bytes | None = None."
    if schema.get("format") == "date-time" and not re.search(r"(Z|[+-]\d\d:\d\d)$", str(default)):
        return f"the default value {default!r} has no time zone; give it tzinfo=datetime.UTC, or another one."
    return None


def _suggest(plain: Any, members: list[Any]) -> str:
    if len(members) > 1:
        return "one type, or one class with optional fields (and a kopf.Rule), or Any"
    return _CURES.get(plain, "a dataclass, a msgspec.Struct, a TypedDict, or Any")


def _name_json_type(hint: Any) -> str:
    schema = _SCALARS.get(unwrap(hint).hint, {})
    return str(schema.get("type", ""))


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
