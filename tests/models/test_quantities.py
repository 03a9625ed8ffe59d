"""Texts with a value: quantities and durations."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pydantic
import pytest

import kopf
from kopf._values import codec


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("5", 5),
        (5, 5),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("500m", "0.5"),
        ("10n", "1e-8"),
        ("7u", "7e-6"),
        ("2k", 2000),
        ("3M", 3 * 10**6),
        ("1Ki", 1024),
        ("1.5Gi", 1.5 * 2**30),
        ("2Ei", 2**61),
        ("5E", 5 * 10**18),
        ("1e3", 1000),
        ("12E2", 1200),
        ("-1Mi", -(2**20)),
        ("+1", 1),
    ],
)
def test_quantities(text: Any, value: Any) -> None:
    quantity = kopf.Quantity(text)
    assert quantity.value == Decimal(value)
    assert quantity == str(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5s", 5),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("100ms", 0.1),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("-2m", -120),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert kopf.Duration(text).value == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["", "x", "1X", "1 Gi", "5\n", 1.5, True, None, "1e", "Ki"])
@pytest.mark.parametrize("cls", [kopf.Quantity, kopf.Duration])
def test_what_is_neither(cls: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="is not a (quantity|duration)"):
        cls(value)


def test_they_are_written_as_they_were_given() -> None:
    assert codec.encode({"x": kopf.Quantity("1Gi")}) == b'{"x":"1Gi"}'


def test_pydantic_knows_them() -> None:
    class Model(pydantic.BaseModel):
        cpu: kopf.Quantity
        timeout: kopf.Duration | None = None

    model = Model.model_validate({"cpu": "1Gi", "timeout": "5s"})
    assert model.model_dump(mode="json") == {"cpu": "1Gi", "timeout": "5s"}
    assert model.cpu.value == 2**30
    assert Model.model_json_schema()["properties"]["cpu"]["type"] == "string"
    with pytest.raises(pydantic.ValidationError):
        Model.model_validate({"cpu": "x"})
