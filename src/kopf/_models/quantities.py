"""Strings with a value: the quantities and the durations of Kubernetes. They keep their original form."""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Any, ClassVar, Self

_UNITS = {"n": "1e-9", "u": "1e-6", "m": "1e-3", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15"}
_UNITS |= {"E": "1e18", **{f"{name}i": str(1024**power) for power, name in enumerate("KMGTPE", 1)}}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class _Text(str):
    """A string of one form. Raises :class:`ValueError` for any other form."""

    __slots__ = ()
    PATTERN: ClassVar[str]
    SCHEMA: ClassVar[dict[str, Any]]

    def __new__(cls, value: object) -> Self:
        """Take a string, or a whole number if the form permits it."""
        self = super().__new__(cls, value)
        if type(value) is bool or not isinstance(value, str | int) or not re.fullmatch(cls.PATTERN, self):
            raise ValueError(f"{value!r} is not a {cls.__name__.lower()}")
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # only pydantic calls this method

        return core_schema.no_info_plain_validator_function(
            cls,
            json_schema_input_schema=core_schema.str_schema(pattern=cls.PATTERN),
            serialization=core_schema.to_string_ser_schema(),
        )


class Quantity(_Text):
    """
    An amount, as in the resources of containers: ``kopf.Quantity("500m").value == Decimal("0.5")``.

    It is a string in its original form. Objects can also have a whole number. Raises :class:`ValueError` for any other
    form.
    """

    __slots__ = ()
    PATTERN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
    """The regular expression of the accepted texts."""
    SCHEMA: ClassVar[dict[str, Any]] = {"x-kubernetes-int-or-string": True, "pattern": PATTERN}
    """The schema of the field in the definition of the custom resource."""

    @property
    def value(self) -> decimal.Decimal:
        """The amount as a number."""
        number = self.rstrip("".join(_UNITS))
        if number and self[len(number) :] in _UNITS:
            return decimal.Decimal(number) * decimal.Decimal(_UNITS[self[len(number) :]])
        return decimal.Decimal(self)


class Duration(_Text):
    """
    A duration, as in Kubernetes: ``kopf.Duration("1h30m").value == timedelta(minutes=90)``.

    It is a string in its original form. Raises :class:`ValueError` for any other form.
    """

    __slots__ = ()
    PATTERN = r"^-?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$"
    """The regular expression of the accepted texts."""
    SCHEMA: ClassVar[dict[str, Any]] = {"type": "string", "pattern": PATTERN}
    """The schema of the field in the definition of the custom resource."""

    @property
    def value(self) -> datetime.timedelta:
        """The duration as a time delta."""
        parts = re.findall(r"([0-9.]+)(ns|us|µs|ms|s|m|h)", self)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
        return datetime.timedelta(seconds=-seconds if self.startswith("-") else seconds)
