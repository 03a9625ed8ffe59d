"""Schemas of models: accepted by the cluster, which takes the objects that fit them, and refuses all others."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kopf
from kopf._models.crds import make_definitions
from kopf._models.structural import make_schema
from kopf.testing import APIStatus
from kopf_cluster import LocalCluster

Meta = msgspec.Meta
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bare=True) as cluster:
        yield cluster


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Inner:
    field: Annotated[int, Meta(ge=1)]
    other: str | None = None


class Item(TypedDict):
    name: str
    value: int


class InnerModel(pydantic.BaseModel):
    field: Annotated[int, pydantic.Field(ge=1)]
    other: str | None = None


Port = NewType("Port", int)
Ports = Annotated[list[Item], kopf.Schema(list_type="map", list_map_keys=["name"])]
Atomic = Annotated[list[int], kopf.Schema(list_type="atomic")]
Kept = Annotated[Inner, kopf.Schema(preserve_unknown=True)]
Ruled = Annotated[int, kopf.Schema(rules=[kopf.Rule("self % 2 == 0", message="It must be even.")])]
Embedded = Annotated[dict[str, Any], kopf.Schema(embedded=True)]
Either = Annotated[Any, kopf.Schema(int_or_string=True)]

#: What types there are; which values are right, which are wrong for the type, and which are wrong for the cluster only.
TYPES: list[tuple[Any, list[Any], list[Any], list[Any]]] = [
    (str, ["", "x"], [1, True, {}], []),
    (Annotated[str, Meta(pattern="^a+$", max_length=3)], ["aaa"], ["b", "aaaa", ""], []),
    (int, [0, -5], ["1", True, 1.5], []),
    (Annotated[int, Meta(gt=0, le=9)], [1, 9], [0, 10], []),
    (Annotated[int, Meta(multiple_of=3)], [3, 0], [4], []),
    (float, [1.5, 1], ["1"], []),
    (Annotated[float, Meta(ge=0.5, lt=2)], [0.5], [2, 0.4], []),
    (bool, [True], [1, "true"], []),
    (bytes, ["eHg=", "eB=="], [1, "eHg", "e_-=", "eHg=\n", {}], [""]),
    (uuid.UUID, ["6fa459ea-ee8a-3ca4-894e-db77e160355e", "6FA459EAEE8A3CA4894EDB77E160355E"], [1, "", "x"], []),
    (
        datetime.datetime,
        ["2026-01-01T00:00:00Z", "2026-01-01t00:00:00.123456789+05:30"],
        ["", "tomorrow", "2026-01-01", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z", 1, 1.5],
        ["2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00+0530"],
    ),
    (datetime.date, ["2026-01-01"], ["", "x", "2026-02-30", "20260101", "2026-01-01T00:00:00Z", 1, True], []),
    (dict[str, list[datetime.date]], [{"x": ["2026-01-01"]}], [{"x": ["never"]}], []),
    (datetime.date | None, ["2026-01-01", None], ["never"], []),
    (decimal.Decimal, ["1.50"], ["one"], []),
    (kopf.Quantity, ["500m", "1Gi", 2], ["x", "1X", 1.5], []),
    (kopf.Duration, ["1h30m", "0.5s"], ["x", "1d", 5], []),
    (Colour, ["red"], ["green", 1], []),
    (Level, [1], [3, "1"], []),
    (Literal["a", "b"], ["a"], ["c"], []),
    (Literal[1, 2], [2], [3, "2"], []),
    (Literal["a"] | None, ["a", None], ["c"], []),
    (Literal["a", None], ["a", None], ["c"], []),
    (Colour | None, ["red", None], ["green"], []),
    (int | str, [1, "1"], [1.5, []], []),
    (int | float, [1, 1.5], ["1"], []),
    (str | None, ["x", None], [1], []),
    (Annotated[int, Meta(ge=1)] | None, [1, None], [0], []),
    (list[int], [[], [1]], [1, ["x"]], []),
    (Annotated[list[int], Meta(min_length=1, max_length=2)], [[1]], [[], [1, 2, 3]], []),
    (tuple[str, ...], [["x"]], [[1]], []),
    (set[str], [["x", "y"]], [[1]], [["x", "x"]]),
    (dict[str, int], [{"x": 1}], [{"x": "y"}, []], []),
    (Annotated[dict[str, int], Meta(max_length=1)], [{"x": 1}], [{"x": 1, "y": 2}], []),
    (Any, [1, "x", {"x": [1]}, [None]], [], []),
    (Inner, [{"field": 1}], [{"field": 0}, {}, {"field": 1, "other": 5}], []),
    (Inner | None, [None, {"field": 1}], [{"field": "x"}], []),
    (list[Inner], [[{"field": 1}]], [[{"field": 0}], [{}]], []),
    (dict[str, Inner], [{"x": {"field": 1}}], [{"x": {"field": 0}}], []),
    (Port, [1], ["x"], []),
    (Ports, [[{"name": "x", "value": 1}]], [[{"name": 1, "value": 1}]], [[{"name": "x", "value": 1}] * 2]),
    (Atomic, [[1, 1]], [["x"]], []),
    (Kept, [{"field": 1, "unknown": 1}], [{"field": 0}], []),
    (Ruled, [2], ["x"], [3]),
    (Embedded, [{"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1}}], ["x"], [{}]),
    (Either, [1, "x"], [], [1.5]),
    (Annotated[str, Meta(description="It is described.")], ["x"], [1], []),
]

PYDANTIC_TYPES: list[tuple[Any, list[Any], list[Any], list[Any]]] = [
    (Annotated[int, pydantic.Field(gt=0, le=9)], [1], [0, 10], []),
    (Annotated[str, pydantic.Field(pattern="^a+$")], ["aa"], ["b"], []),
    (list[Annotated[int, pydantic.Field(ge=1)]], [[1]], [[0]], []),
    (InnerModel, [{"field": 1}], [{"field": 0}, {}], []),
    (dict[str, InnerModel], [{"x": {"field": 1}}], [{"x": {}}], []),
    (pydantic.Base64Bytes, ["eHg="], [1, "eHg"], ["", "eH g="]),
    (uuid.UUID, ["6fa459ea-ee8a-3ca4-894e-db77e160355e"], [1, "", "x"], []),
    (datetime.datetime, ["2026-01-01T00:00:00Z"], ["tomorrow", "2026-02-30T00:00:00Z"], ["2026-01-01", 1]),
    (datetime.date, ["2026-01-01"], ["never", "2026-02-30"], [0]),
    (InnerModel | None, [None, {"field": 1}], [{"field": "x"}], []),
    (Colour, ["red"], ["green"], []),
    (kopf.Quantity, ["500m", 2], ["x"], []),
    (
        Annotated[list[InnerModel], kopf.Schema(list_type="map", list_map_keys=["field"])],
        [[{"field": 1}, {"field": 2}]],
        [[{"field": 0}]],
        [[{"field": 1}] * 2],
    ),
]


def declare(spec: Any) -> Any:
    """Make a model with a spec of that type, of a new kind."""
    kind = f"Kind{next(numbers)}"

    class Model(kopf.CustomResource[spec, dict[str, Any]], group="example.com", version="v1", kind=kind):
        pass

    return Model


def create(cluster: LocalCluster, model: Any, spec: Any) -> Any:
    """Create an object; get it as it is stored. Raises :class:`APIStatus`."""
    body = {"apiVersion": "example.com/v1", "kind": model.resource.kind, "metadata": {"name": f"obj{next(numbers)}"}}
    [obj] = cluster.apply({**body, "spec": spec})
    return obj


def check(
    cluster: LocalCluster,
    model: Any,
    right: Sequence[Any],
    wrong: Sequence[Any],
    refused: Sequence[Any],
) -> None:
    cluster.apply(make_definitions([model])[0])
    for value in right:
        obj = create(cluster, model, {"value": value})
        model(obj)
        assert obj["spec"]["value"] == value
    for value in wrong:
        with pytest.raises(kopf.ModelMismatchError, match=r"spec\.value"):
            model({"spec": {"value": value}})
    for value in (*wrong, *refused):
        with pytest.raises(APIStatus, match=r"spec\.value"):
            create(cluster, model, {"value": value})


@pytest.mark.parametrize(("hint", "right", "wrong", "refused"), TYPES, ids=lambda arg: str(arg)[:60])
@pytest.mark.parametrize("kind", ["struct", "dataclass"])
def test_types(
    cluster: LocalCluster,
    kind: str,
    hint: Any,
    right: list[Any],
    wrong: list[Any],
    refused: list[Any],
) -> None:
    make = msgspec.defstruct if kind == "struct" else dataclasses.make_dataclass
    check(cluster, declare(make("Spec", [("value", hint)])), right, wrong, refused)


@pytest.mark.parametrize(("hint", "right", "wrong", "refused"), PYDANTIC_TYPES, ids=lambda arg: str(arg)[:60])
def test_types_of_pydantic(
    cluster: LocalCluster,
    hint: Any,
    right: list[Any],
    wrong: list[Any],
    refused: list[Any],
) -> None:
    check(cluster, declare(pydantic.create_model("Spec", value=(hint, ...))), right, wrong, refused)


def test_defaults_are_those_of_the_class(cluster: LocalCluster) -> None:
    class Defaults(msgspec.Struct):
        number: int = 5
        quantity: kopf.Quantity = kopf.Quantity("1Gi")
        colour: Colour = Colour.RED
        names: list[str] = []
        inner: Inner = msgspec.field(default_factory=lambda: Inner(1))
        nothing: str | None = None

    model = declare(Defaults)
    cluster.apply(make_definitions([model])[0])
    obj = create(cluster, model, {})
    assert obj["spec"] == {"number": 5, "quantity": "1Gi", "colour": "red", "names": []}
    assert model(obj).spec == Defaults()


def test_immutable_fields(cluster: LocalCluster) -> None:
    model = declare(msgspec.defstruct("Spec", [("value", Annotated[int, kopf.Schema(immutable=True)])]))
    cluster.apply(make_definitions([model])[0])
    obj = create(cluster, model, {"value": 1})
    with pytest.raises(APIStatus, match=r"spec\.value: .*It is immutable"):
        cluster.apply({**obj, "spec": {"value": 2}})


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (tuple[int, str], r"Spec\.value: tuple\[int, str\] has no schema; use list"),
        (str | list[str], r"Spec\.value: str \| list\[str\] has no schema; use one type"),
        (datetime.timedelta, r"Spec\.value: timedelta has no schema; use kopf\.Duration"),
        (dict[int, str], r"the keys of objects are strings, not int; use dict\[str"),
        (Literal["a", 1], r"the values of an enumeration must be of one type"),
        (set[Inner], r"only scalars can be in sets"),
        (list[object], None),
        (Annotated[int, kopf.Schema(list_type="set")], r"list_type= is for lists only"),
        (Annotated[list[Item], kopf.Schema(list_type="map")], r"needs list_map_keys="),
        (
            Annotated[list[Item], kopf.Schema(list_type="map", list_map_keys=["x"])],
            r"there is no field 'x' in the items",
        ),
        (msgspec.defstruct("Tagged", [("field", int)], tag=True), r"Tagged is tagged or array-like"),
    ],
)
def test_what_has_no_schema_is_refused(hint: Any, problem: str | None) -> None:
    spec = msgspec.defstruct("Spec", [("value", hint)])
    if problem is None:
        declare(spec)
        return
    with pytest.raises(kopf.DeclarationError, match=problem):
        declare(spec)


def test_default_values_must_fit() -> None:
    with pytest.raises(kopf.DeclarationError, match=r"Spec\.value: the default value is wrong by its own type: .*>= 1"):
        declare(msgspec.defstruct("Spec", [("value", Annotated[int, Meta(ge=1)], 0)]))


@pytest.mark.parametrize(
    ("hint", "default", "problem"),
    [
        (
            datetime.datetime,
            datetime.datetime(2026, 1, 1),  # noqa: DTZ001
            r"Spec\.value: .*2026-01-01T00:00:00.* has no time zone; give it tzinfo",
        ),
        (bytes, b"", r"Spec\.value: the default value is empty, which API servers refuse for bytes; use bytes \| None"),
    ],
)
@pytest.mark.parametrize("kind", ["struct", "dataclass"])
def test_default_values_must_be_accepted(kind: str, hint: Any, default: Any, problem: str) -> None:
    make = msgspec.defstruct if kind == "struct" else dataclasses.make_dataclass
    with pytest.raises(kopf.DeclarationError, match=problem):
        declare(make("Spec", [("value", hint, default)]))


def test_bytes_of_pydantic_are_in_base64() -> None:
    with pytest.raises(
        kopf.DeclarationError, match=r"Spec\.value: pydantic takes the text .*; use pydantic\.Base64Bytes"
    ):
        declare(pydantic.create_model("Spec", value=(bytes, ...)))


def test_constraints_of_another_library_are_refused() -> None:
    with pytest.raises(kopf.DeclarationError, match=r"msgspec\.Meta is not for classes of pydantic"):
        declare(pydantic.create_model("Spec", value=(Annotated[int, Meta(ge=1)], ...)))


def make_time_zone(minutes: int) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(minutes=minutes))


small = st.integers(0, 3)
bounded = st.builds(lambda low, size: Annotated[int, Meta(ge=low, le=low + size)], st.integers(-5, 5), small)
sized = st.builds(lambda low, size: Annotated[str, Meta(min_length=low, max_length=low + size)], small, small)
formatted: dict[Any, st.SearchStrategy[Any]] = {
    datetime.datetime: st.datetimes(timezones=st.builds(make_time_zone, st.integers(-1439, 1439))),
    datetime.date: st.dates(),
    uuid.UUID: st.uuids(),
    bytes: st.binary(min_size=1),
    decimal.Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    kopf.Duration: st.builds("{}h{}.{}s".format, small, small, small).map(kopf.Duration),
    kopf.Quantity: st.builds("{}.{}Mi".format, small, small).map(kopf.Quantity),
}
"""Types that are texts of a format or a pattern in JSON, with their values."""
scalars = st.one_of(
    st.sampled_from([str, int, bool, float, Colour, int | str]), st.sampled_from([*formatted]), bounded, sized
)


def nest(hints: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from("abc"), hints, min_size=1)
    return st.one_of(
        hints.map(lambda hint: list[hint]),  # type: ignore[valid-type]
        hints.map(lambda hint: dict[str, hint]),  # type: ignore[valid-type]
        hints.map(lambda hint: hint | None),
        fields.map(lambda items: msgspec.defstruct("Inner", [*items.items()])),
        fields.map(lambda items: dataclasses.make_dataclass("Inner", [*items.items()])),
    )


hints = st.recursive(scalars, nest, max_leaves=4)
texts = st.one_of(st.sampled_from(["", "red", "1Gi", "abcd"]), st.text(st.characters(codec="utf-8"), max_size=7))
decimals = st.floats(-9, 9).filter(lambda value: math.modf(value)[0] != 0)
values = st.recursive(
    st.one_of(texts, st.integers(-9, 9), st.booleans(), decimals),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=5,
)


def encode(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)


def draw_text(schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
    """Make a text of the format, or nearly: with one character more, less, or another one."""
    chars = st.sampled_from(["", "0", "1", "9", "-", ":", ".", "t", "T", "z", " ", "+", "=", "/", "_", "a", "\n", "٢"])
    found = [values for hint, values in formatted.items() if make_schema(hint, Inner) == {**schema}]
    exact = st.one_of(*found).map(encode) if found else texts
    spoilt = st.builds(
        lambda text, place, size, char: text[:place] + char + text[place + size :],
        exact.map(str),
        st.integers(0, 30),
        st.integers(0, 1),
        chars,
    )
    return st.one_of(texts, exact.map(str), spoilt)


def draw_fitting(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Make values that look right by the schema, mostly: its limits are not looked at."""
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "string": draw_text(schema) if schema.get("type") == "string" else texts,
        "integer": st.integers(-9, 9),
        "number": decimals,
        "boolean": st.booleans(),
    }
    if "items" in schema:
        return st.lists(draw_fitting(schema["items"]), max_size=2)
    if "additionalProperties" in schema:
        return st.dictionaries(st.sampled_from("abc"), draw_fitting(schema["additionalProperties"]), max_size=2)
    if "properties" in schema:
        return st.fixed_dictionaries({name: draw_fitting(item) for name, item in schema["properties"].items()})
    return kinds.get(schema.get("type", ""), st.one_of(texts, st.integers(-9, 9)))


def fits(model: Any, value: Any) -> bool:
    try:
        model({"spec": {"value": value}})
    except kopf.ModelMismatchError:
        return False
    return True


few = settings(max_examples=settings().max_examples // 2, suppress_health_check=[*HealthCheck])
"""Each takes many requests."""


def is_different(schema: Mapping[str, Any], value: Any) -> bool:
    """Tell if there is anything that API servers and Python read differently: see ``docs/models.md``."""
    if schema.get("pattern") == make_schema(decimal.Decimal, Inner)["pattern"]:  # Python knows other digits, NaN, etc.
        return isinstance(value, str) and not re.fullmatch(schema["pattern"], value)
    if "format" not in schema:
        inner = schema.get("properties", {})
        items = (
            value.items()
            if isinstance(value, dict)
            else [("", item) for item in value]
            if isinstance(value, list)
            else []
        )
        return any(
            is_different(inner.get(name) or schema.get("items") or schema.get("additionalProperties") or {}, item)
            for name, item in items
        )
    if isinstance(value, list):
        return True
    if not isinstance(value, str):
        return False
    return bool(
        {
            "byte": value == "",
            "date": value.startswith("0000"),
            "date-time": value.startswith("0000")
            or not re.fullmatch(r".{10}[tT].{8}(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)", value, re.ASCII),
            "uuid": value.count("-") not in (0, 4),
        }[schema["format"]]
    )


@few
@given(hint=hints, data=st.data())
def test_what_fits_is_accepted_and_what_does_not_is_refused(
    cluster: LocalCluster,
    hint: Any,
    data: st.DataObject,
) -> None:
    model = declare(msgspec.defstruct("Spec", [("value", hint)]))
    [definition] = make_definitions([model])
    cluster.apply(definition)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["value"]
    for strategy in (draw_fitting(schema), draw_fitting(schema), values):
        value = data.draw(strategy)
        if is_different(schema, value):
            continue
        if fits(model, value):
            model(create(cluster, model, {"value": value}))
            continue
        with pytest.raises(kopf.ModelMismatchError, match=r"spec\.value"):
            model({"spec": {"value": value}})
        with pytest.raises(APIStatus, match=r"spec\.value"):
            create(cluster, model, {"value": value})


@pytest.mark.parametrize("hint", formatted, ids=lambda hint: hint.__name__)
@few
@given(data=st.data())
def test_texts_of_a_format_are_accepted_as_they_are_encoded(
    cluster: LocalCluster, hint: Any, data: st.DataObject
) -> None:
    """And whatever is nearly one, is read or refused by both sides."""
    model, schema = get_model_of_values(cluster, hint)
    spec = model.resource.spec(data.draw(formatted[hint]))
    assert model(create(cluster, model, encode(spec))).spec == spec
    for value in data.draw(st.lists(draw_text(schema), min_size=5, max_size=5)):
        if is_different(schema, value):
            continue
        if fits(model, value):
            create(cluster, model, {"value": value})
        else:
            with pytest.raises(APIStatus, match=r"spec\.value") as info:
                create(cluster, model, {"value": value})
            details = info.value.details or {}
            assert {cause["field"] for cause in details["causes"]} == {"spec.value"}


@functools.cache
def get_model_of_values(cluster: LocalCluster, hint: Any) -> tuple[Any, Mapping[str, Any]]:
    model = declare(msgspec.defstruct("Spec", [("value", hint)]))
    cluster.apply(make_definitions([model])[0])
    return model, make_schema(hint, Inner)


def test_nulls_are_among_the_values_of_nullable_enumerations() -> None:
    """API servers look for nulls there, unlike the local cluster."""
    assert make_schema(Colour | None, Inner) == {"type": "string", "enum": ["red", "blue", None], "nullable": True}
