"""
Objects of all kinds, with random fields of the right types.
"""

from __future__ import annotations

import base64
import gzip
import importlib.resources
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from kopf_cluster.protobuf.messages import Message, Row, find_message, find_value, open_envelope, read_rows

SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SIMPLE: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "string": lambda dice: "".join(dice.choices("aZ1-\u00e4\u20ac\U0001f600", k=dice.randint(1, 200))),
    "bool": lambda dice: True,
    "int32": lambda dice: dice.choice([1, -1, 80, 2**31 - 1, -(2**31)]),
    "int64": lambda dice: dice.choice([1, -1, 300, 2**63 - 1, -(2**63)]),
    "double": lambda dice: dice.choice([1, 0.5, -2.25, 1e300]),
    "bytes": lambda dice: base64.b64encode(dice.randbytes(dice.randint(1, 9))).decode(),
    "strings": lambda dice: ["a", "b"][: dice.randint(1, 2)],
    f"{META}.Time": lambda dice: dice.choice(["2024-02-29T23:59:59Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"]),
    f"{META}.MicroTime": lambda dice: dice.choice(["2024-02-29T23:59:59.000001Z", "1970-01-01T00:00:00.500000Z"]),
    f"{META}.FieldsV1": lambda dice: {"f:data": {".": {}, "f:a": {}}},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda dice: dice.choice(["1", "100Mi", "-5m"]),
    "io.k8s.apimachinery.pkg.runtime.RawExtension": lambda dice: {"kind": "X", "list": [1, None, "\u20ac"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": lambda dice: dice.choice([80, -1, "http", "25%"]),
    f"{SCHEMA.removesuffix('SchemaProps')}": lambda dice: dice.choice([1, "x", {"a": [True]}, [1.5]]),
}


def make(type_: str, dice: random.Random, depth: int) -> Any:
    """Make a value of a type that is not empty; the deeper it is, the fewer fields it has."""
    if type_ in SIMPLE:
        return SIMPLE[type_](dice)
    schema = {"type": "object", "description": "a schema"}
    match type_.removeprefix(SCHEMA):
        case "OrArray":
            return dice.choice([schema, [schema, schema]])
        case "OrBool":
            return dice.choice([schema, True])
        case "OrStringArray":
            return dice.choice([schema, ["a", "b"]])
    obj: dict[str, Any] = {}
    for row in read_rows(type_):
        if dice.random() < (0.6 if depth > 0 else 0.1) and (depth > -3 or row.type in SIMPLE):
            value = _make_field(row, dice, depth - 1)
            obj.update(value if not row.name else {row.name: value})
    return obj


def _make_field(row: Row, dice: random.Random, depth: int) -> Any:
    count = dice.randint(1, 3)
    if row.cardinality == "list":
        return [make(row.type, dice, depth) for _ in range(count)]
    if row.cardinality == "map":
        return {f"key-{index}": make(row.type, dice, depth) for index in range(count)}
    return make(row.type, dice, depth)


def without_empty(value: Any) -> Any:
    """Leave out what Go does not tell from what is absent."""
    if isinstance(value, dict):
        left = {name: without_empty(item) for name, item in value.items()}
        return {name: item for name, item in left.items() if item not in ("", "0", 0, False, None, {}, [])}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def list_messages() -> list[str]:
    packed = importlib.resources.files("kopf_cluster.protobuf").joinpath("data/messages.json.gz").read_bytes()
    return list(json.loads(gzip.decompress(packed))["messages"])


def decode_object(data: bytes) -> dict[str, Any]:
    """Give what is in the envelope."""
    envelope = open_envelope(data)
    message = find_message(envelope.api_version, envelope.kind)
    assert message is not None
    return {"kind": envelope.kind, "apiVersion": envelope.api_version, **message.decode(envelope.raw)}


def find(definition: str) -> Message:
    value = find_value(definition)
    assert isinstance(value, Message)
    return value
