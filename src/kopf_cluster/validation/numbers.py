"""
Numbers, and percentages that stand where numbers can.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, invalid_value

Obj: TypeAlias = dict[str, Any]

_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_RULE: Final = ("a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
                        "'93%', regex used for validation is '[0-9]+%')")
_NEGATIVE: Final = "must be greater than or equal to 0"


def not_negative(obj: Obj, path: str, *fields: str) -> Iterator[FieldError]:
    """Refuse the negative ones of these fields."""
    for field in fields:
        if (value := obj.get(field)) is not None and value < 0:
            yield invalid_value(f"{path}.{field}", value, _NEGATIVE)


def number_or_percent(value: int | str, path: str, *, most: int | None = None) -> Iterator[FieldError]:
    """Refuse what is neither a number nor a percentage, or is too much if there is a limit, in percents."""
    if isinstance(value, int):
        if value < 0:
            yield invalid_value(path, value, _NEGATIVE)
    elif not _PERCENT.fullmatch(value):
        yield invalid_value(path, value, _PERCENT_RULE)
    elif most is not None and int(value.removesuffix("%")) > most:
        yield invalid_value(path, value, f"must not be greater than {most}%")
