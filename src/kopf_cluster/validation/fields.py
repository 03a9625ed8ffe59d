"""
Common validation of fields of many kinds: lists, names of all sorts, numbers, and label selectors.

The rules of names follow "Object Names and IDs". Each function of a name yields its faults, as the text after
"Invalid value: ...: ".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias

from kopf_cluster.kinds.objects import label, validate_labels, validate_qualified
from kopf_cluster.statuses import FieldError, duplicate_value, forbidden_value, invalid_value, required

_VARIABLE_RULE: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
_PORT_CHARACTERS: Final = re.compile(r"[-a-z0-9]*")


Obj: TypeAlias = dict[str, Any]
P = ParamSpec("P")


def each(
    obj: Obj,
    field: str,
    path: str,
    validate: Callable[Concatenate[Any, str, P], Iterator[FieldError]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Iterator[FieldError]:
    """Validate each item of the list in the field, if there is one; the path is that of the object."""
    for index, item in enumerate(obj.get(field) or ()):
        yield from validate(item, f"{path}.{field}[{index}]", *args, **kwargs)


def port(number: Any) -> Iterator[str]:
    if not isinstance(number, int) or not 1 <= number <= 65535:
        yield "must be between 1 and 65535, inclusive"


def port_name(name: str) -> Iterator[str]:
    """A name of a service as of IANA (RFC 6335): names of ports of containers."""
    if len(name) > 15:
        yield "must be no more than 15 bytes"
    if not _PORT_CHARACTERS.fullmatch(name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def variable(name: str) -> Iterator[str]:
    """A name of an environment variable."""
    if "=" in name or not name.isascii() or not name.isprintable():
        yield _VARIABLE_RULE


# Names of items in lists: each is a unique DNS label.


def unique(name: str, path: str, taken: set[str]) -> Iterator[FieldError]:
    """Refuse the name if it is taken already, and take it; an empty name may be repeated."""
    if name and name in taken:
        yield duplicate_value(path, name)
    taken.add(name)


def validate_item_name(name: str, path: str, taken: set[str], *, needed: bool = True) -> Iterator[FieldError]:
    """Validate the name of the next item, and take the name."""
    if not name:
        if needed:
            yield required(path)
        return
    for why in label(name):
        yield invalid_value(path, name, why)
    yield from unique(name, path, taken)


# Numbers, and percentages in the place of numbers.

_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_RULE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_NEGATIVE: Final = "must be greater than or equal to 0"


def not_negative(obj: Obj, path: str, *fields: str) -> Iterator[FieldError]:
    """Refuse negative numbers in these fields."""
    for field in fields:
        yield from within(f"{path}.{field}", obj.get(field), 0, math.inf, _NEGATIVE)


def within(path: str, value: int | None, least: float, most: float, why: str) -> Iterator[FieldError]:
    """Refuse a number outside of the limits, both of which are allowed; an absent number is good."""
    if value is not None and not least <= value <= most:
        yield invalid_value(path, value, why)


def number_or_percent(value: int | str, path: str, *, most: int | None = None) -> Iterator[FieldError]:
    """Refuse anything but a number or a percentage, and percentages above the limit, if there is one."""
    if isinstance(value, int):
        if value < 0:
            yield invalid_value(path, value, _NEGATIVE)
    elif not _PERCENT.fullmatch(value):
        yield invalid_value(path, value, _PERCENT_RULE)
    elif most is not None and int(value.removesuffix("%")) > most:
        yield invalid_value(path, value, f"must not be greater than {most}%")


# Label selectors inside of objects.


def validate_selector(selector: Obj, path: str) -> Iterator[FieldError]:
    """Yield all errors in a selector; an empty one is good."""
    yield from validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    yield from each(selector, "matchExpressions", path, validate_requirement)


def validate_requirement(
    requirement: Obj,
    path: str,
    *,
    comparing: bool = False,
) -> Iterator[FieldError]:
    """Yield all errors in one expression; expressions about nodes can compare, too: ``Gt``, ``Lt``."""
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_value(
                f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
    elif comparing and operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    yield from validate_qualified(f"{path}.key", requirement.get("key") or "")
