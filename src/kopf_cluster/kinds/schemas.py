"""
Structural schemas of custom resources: defaulting and validation, after `pruning`, in this order as in the API server.

The rules and the wording follow "Extend the Kubernetes API with CustomResourceDefinitions" and the messages
of kube-apiserver. A schema is parsed once, when a definition is registered; objects are walked only where the schema
declares something.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf_cluster import codec, statuses
from kopf_cluster.cel.values import ABSENT, counterparts
from kopf_cluster.codec import same
from kopf_cluster.kinds.string_formats import find_check
from kopf_cluster.patterns import compile_pattern
from kopf_cluster.statuses import FieldError, invalid_value, quoted

_JSON_TYPES: Final[dict[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
_GO_FORMATS: Final[dict[type, str]] = {int: "int64", float: "float64"}


@dataclasses.dataclass(frozen=True)
class Schema:
    """One node of a schema. The raw definition has the limits, which are looked up only if there are any."""

    raw: Mapping[str, Any]
    type: str
    nullable: bool
    int_or_string: bool
    preserves: bool
    embedded: bool
    properties: Mapping[str, Schema]
    additional: Schema | None
    additional_anything: bool
    items: Schema | None
    defaults: Mapping[str, Any]
    limits: bool
    """Whether there are limits besides the type and the contents."""
    embeds: bool
    """Whether there are embedded objects here or inside."""


_LIMITS: Final = (
    "required",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "multipleOf",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-list-type",
)


def parse(raw: Mapping[str, Any]) -> Schema:
    """Parse a schema from its definition in `openAPIV3Schema`."""
    properties = {name: parse(sub) for name, sub in (raw.get("properties") or {}).items()}
    additional = parse(raw["additionalProperties"]) if isinstance(raw.get("additionalProperties"), Mapping) else None
    items = parse(raw["items"]) if isinstance(raw.get("items"), Mapping) else None
    embedded = bool(raw.get("x-kubernetes-embedded-resource"))
    inside = [sub for sub in (*properties.values(), additional, items) if sub is not None]
    return Schema(
        raw=raw,
        type=raw.get("type", ""),
        nullable=bool(raw.get("nullable")),
        int_or_string=bool(raw.get("x-kubernetes-int-or-string")),
        preserves=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        embedded=embedded,
        properties=properties,
        additional=additional,
        additional_anything=raw.get("additionalProperties") is True,
        items=items,
        defaults={name: sub.raw["default"] for name, sub in properties.items() if "default" in sub.raw},
        limits=embedded or any(limit in raw for limit in _LIMITS) or ("format" in raw and find_check(raw) is not None),
        embeds=embedded or any(sub.embeds for sub in inside),
    )


def fill_defaults(value: Any, schema: Schema, *, absent: bool = True) -> None:
    """Add the default values of absent fields in place. Nulls count as absent where they are not allowed.

    Without ``absent``, only drop these nulls.
    """
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            sub = schema.properties.get(name, schema.additional)
            if sub is not None and not sub.nullable:
                del value[name]
        for name, default in schema.defaults.items():
            if absent and name not in value:
                value[name] = codec.normalise(default)
        for name, item in value.items():
            sub = schema.properties.get(name, schema.additional)
            if sub is not None:
                fill_defaults(item, sub, absent=absent)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            fill_defaults(item, schema.items, absent=absent)


def validate(value: Any, schema: Schema, path: str, old: Any = ABSENT) -> Iterator[FieldError]:
    """Yield all errors in the value; an object is validated as a whole, with its head.

    With the old value, unchanged parts are not validated: see "Validation ratcheting".
    """
    if value is None and (schema.nullable or not schema.type):
        return
    if old is not ABSENT and same(value, old):
        return
    yield from _validate_type(value, schema, path)
    if schema.limits:
        yield from _validate_limits(value, schema.raw, path)
    if isinstance(value, dict):
        olds = old if isinstance(old, dict) else {}
        for name, item in value.items():
            sub = schema.properties.get(name, schema.additional)
            if sub is not None:
                yield from validate(item, sub, f"{path}.{name}" if path else name, olds.get(name, ABSENT))
    elif isinstance(value, list) and schema.items is not None:
        for index, (item, known) in enumerate(zip(value, counterparts(value, old, schema.raw), strict=True)):
            yield from validate(item, schema.items, f"{path}[{index}]", known)
    if schema.limits:
        yield from _validate_contents(value, schema.raw, path)


def _validate_type(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    actual = _JSON_TYPES[type(value)]
    if schema.int_or_string:
        if actual not in ("integer", "string"):
            yield _wrong_type(path, actual, "integer,string")
    elif schema.type and actual != schema.type:
        if schema.type == "number" and actual == "integer":
            return
        if schema.type == "integer" and isinstance(value, float) and value.is_integer():
            return
        if value is None or schema.type in ("integer", "number") or find_check(schema.raw) is None:
            yield _wrong_type(path, actual, schema.type)
        elif not isinstance(value, (str, list)):  # the server accepts lists if there is a format
            yield _wrong_type(path, _GO_FORMATS.get(type(value), ""), schema.raw["format"])


def _wrong_type(path: str, actual: str, expected: str) -> FieldError:
    text = f"Invalid value: {quoted(actual)}: {path} in body must be of type {expected}: {quoted(actual)}"
    return FieldError(path, "FieldValueTypeInvalid", text)


def _validate_limits(value: Any, raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Validate the value itself, before its contents; the order is that of the API server."""
    yield from _validate_combinations(value, raw, path)
    if isinstance(value, str):
        yield from _validate_string(value, raw, path)
        if "format" in raw and (check := find_check(raw)) is not None and not check(value):
            yield _wrong_type(path, value, raw["format"])
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _validate_number(value, raw, path)
    if "enum" in raw and not any(value == allowed and type(value) is type(allowed) for allowed in raw["enum"]):
        allowed = ", ".join(quoted(item) for item in raw["enum"])
        yield FieldError(
            path, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {allowed}"
        )


def _validate_contents(value: Any, raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Validate the limits of the contents, after the contents themselves."""
    if isinstance(value, list):
        yield from _validate_array(value, raw, path)
    elif isinstance(value, dict):
        yield from _validate_object(value, raw, path)
        if raw.get("x-kubernetes-embedded-resource"):
            yield from _validate_embedded(value, path)


def _validate_embedded(value: dict[str, Any], path: str) -> Iterator[FieldError]:
    """Yield missing types of an embedded object, which needs no metadata."""
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield statuses.required(f"{path}.{name}", "must not be empty")
        elif not value[name]:
            yield invalid_value(f"{path}.{name}", value[name], "must not be empty")


def _validate_string(value: str, raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the first error in a text, as the API server does."""
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {raw['maxLength']} bytes")
    elif "minLength" in raw and len(value) < raw["minLength"]:
        yield invalid_value(path, value, f"{path} in body should be at least {raw['minLength']} chars long")
    elif "pattern" in raw and not compile_pattern(raw["pattern"]).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{raw['pattern']}'")


def _validate_number(value: float, raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for limit, exclusion, breaks, relation in (
        ("minimum", "exclusiveMinimum", operator.lt, "greater than"),
        ("maximum", "exclusiveMaximum", operator.gt, "less than"),
    ):
        if limit in raw:
            exclusive = bool(raw.get(exclusion))
            if breaks(value, raw[limit]) or (exclusive and value == raw[limit]):
                shown = relation if exclusive else f"{relation} or equal to"
                yield invalid_value(path, value, f"{path} in body should be {shown} {raw[limit]}")
    if raw.get("multipleOf") and value % raw["multipleOf"]:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {raw['multipleOf']}")


def _validate_array(value: list[Any], raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if "minItems" in raw and len(value) < raw["minItems"]:
        yield invalid_value(path, len(value), f"{path} in body should have at least {raw['minItems']} items")
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        yield FieldError(
            path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {raw['maxItems']} items"
        )
    list_type = raw.get("x-kubernetes-list-type")
    if list_type == "set" or raw.get("uniqueItems"):
        yield from _find_duplicates(value, path)
    elif list_type == "map":
        keys = raw.get("x-kubernetes-list-map-keys") or []
        yield from _find_duplicates(
            [{key: item[key] for key in keys if key in item} for item in value if isinstance(item, dict)], path
        )


def _find_duplicates(items: list[Any], path: str) -> Iterator[FieldError]:
    seen: set[bytes] = set()
    for index, item in enumerate(items):
        encoded = codec.encode(item)
        if encoded in seen:
            yield FieldError(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {quoted(item)}")
        seen.add(encoded)


def _validate_object(value: dict[str, Any], raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in raw.get("required") or []:
        if name not in value:
            yield statuses.required(f"{path}.{name}" if path else name)
    if "maxProperties" in raw and len(value) > raw["maxProperties"]:
        yield FieldError(
            path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {raw['maxProperties']} items"
        )
    if "minProperties" in raw and len(value) < raw["minProperties"]:
        yield invalid_value(path, len(value), f"{path} in body should have at least {raw['minProperties']} properties")


def _validate_combinations(value: Any, raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    def fits(sub: Mapping[str, Any]) -> bool:
        return next(validate(value, parse(sub), path), None) is None

    for sub in raw.get("allOf") or []:
        yield from validate(value, parse(sub), path)
    if raw.get("anyOf") and not any(fits(sub) for sub in raw["anyOf"]):
        yield invalid_value(path, value, f"{path} in body must validate at least one schema (anyOf)")
    if raw.get("oneOf") and sum(fits(sub) for sub in raw["oneOf"]) != 1:
        yield invalid_value(path, value, f"{path} in body must validate one and only one schema (oneOf)")
    if "not" in raw and fits(raw["not"]):
        yield invalid_value(path, value, f"{path} in body must not validate the schema (not)")
