"""
Quantities of resources, such as ``100m`` or ``1.5Gi``: their syntax, and their canonical form.

See "Quantity" in "Common Definitions" of the Kubernetes API reference: a quantity is kept in its canonical form,
with no fractional digits and the largest possible suffix; fractions of a nano-unit are rounded up.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction
from typing import Final

RULE: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_FORM: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([numkMGTPE]?)|([KMGTPE]i)|[eE]([+-]?\d{1,3}))")
_DECIMALS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARIES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BY_EXPONENT: Final = {exponent: suffix for suffix, exponent in _DECIMALS.items()}
_BY_POWER: Final = {power: suffix for suffix, power in _BINARIES.items()}
_NANO: Final = 10**9


@functools.lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """Return the canonical form, or raise `ValueError` with the message of the API server."""
    sign, _, _, binary, exponent = _match(text).groups()
    nanos = math.ceil(abs(amount(text)) * _NANO)
    if nanos == 0:
        return "0"
    if binary and nanos >= 1024 * _NANO:
        shown = _show_binary(math.ceil(Fraction(nanos, _NANO)))
    else:
        shown = _show_decimal(nanos, exponents=exponent is not None)
    return f"-{shown}" if sign == "-" else shown


def amount(text: str) -> Fraction:
    """Return the exact number, or raise `ValueError` with the message of the API server."""
    sign, digits, suffix, binary, exponent = _match(text).groups()
    number = Fraction(digits.rstrip(".") if digits != "." else "0")
    if binary:
        number *= 2 ** _BINARIES[binary]
    else:
        number *= Fraction(10) ** (int(exponent) if exponent is not None else _DECIMALS[suffix])
    return -number if sign == "-" else number


def _match(text: str) -> re.Match[str]:
    matched = _FORM.fullmatch(text)
    if matched is None:
        raise ValueError(RULE)
    return matched


def _show_binary(amount: int) -> str:
    power = 0
    while power < 60 and amount % 1024 == 0:
        amount //= 1024
        power += 10
    return f"{amount}{_BY_POWER.get(power, '')}"


def _show_decimal(nanos: int, *, exponents: bool) -> str:
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    if exponents and exponent:
        return f"{nanos}e{exponent}"
    return f"{nanos}{_BY_EXPONENT[exponent]}"
