"""
The Kubernetes additions to the Common Expression Language: functions on lists, sets, regexes, URLs, IPs, quantities.

The functions follow "Common Expression Language in Kubernetes" ("Kubernetes CEL libraries"). The language itself
has only plain values here, so a quantity, a URL, an address is a map with one key that tells what it is, always
in the shortest form, so that equal ones are equal. Functions that are not here are unknown to the compiler:
such expressions are refused, not misunderstood.
"""

from __future__ import annotations

import ipaddress
import operator
import re
import urllib.parse
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

from kopf_cluster import quantities
from kopf_cluster.patterns import Pattern, PatternError, compile_pattern

Opaque: TypeAlias = dict[str, str]

_QUANTITY: Final = "k8s.io/quantity"
_URL: Final = "k8s.io/url"
_IP: Final = "k8s.io/ip"
_CIDR: Final = "k8s.io/cidr"


class Function(NamedTuple):
    """One overload: the types are named as in the language."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., Any]
    member: bool = True


# ------------------------------------------------------------------------------------------ lists


def _not_empty(what: str, choose: Callable[[Iterable[Any]], Any]) -> Callable[[list[Any]], Any]:
    def call(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{what} called on empty list")
        return choose(items)

    return call


def _contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(item in items for item in wanted)


# ------------------------------------------------------------------------------------------ regexes

# What means another thing in RE2, which the API server has, or is not there at all.
_FOREIGN: Final = re.compile(r"\\[zpPQEC]|\[\[:|\(\?[<=!P>(]|\\[1-9]|[*+?}][+]|\$")


def _regex(pattern: str) -> Pattern:
    foreign = _FOREIGN.search(pattern.replace("(?P<", "(").removesuffix("$"))
    if foreign:
        raise ValueError(f"find(): {foreign[0]!r} in the pattern {pattern!r} is not supported by the local cluster")
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise ValueError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    match = _regex(pattern).search(text)
    return match[0] if match else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [match[0] for match in _regex(pattern).finditer(text)]


def _find_some(text: str, pattern: str, limit: int) -> list[str]:
    found = _find_all(text, pattern)
    return found if limit < 0 else found[:limit]


# ------------------------------------------------------------------------------------------ quantities

_ZERO: Final[Opaque] = {_QUANTITY: "0"}


def _parse_quantity(text: str) -> Fraction:
    """Parse a quantity, such as ``1.5Gi`` or ``100m``, or raise `ValueError`. Fractions end at nano."""
    return quantities.amount(quantities.canonical(text))


def _make_quantity(value: Fraction) -> Opaque:
    return {_QUANTITY: str(value)}


def _quantity(opaque: Any) -> Fraction:
    return Fraction(_open(opaque, _QUANTITY))


def _to_integer(opaque: Opaque) -> int:
    if not _is_integer(opaque):
        raise ValueError("cannot convert value to integer")
    return int(_quantity(opaque))


def _is_integer(opaque: Opaque) -> bool:
    value = _quantity(opaque)
    return value.denominator == 1 and -(2**63) <= value < 2**63


def _compare(one: Opaque, other: Opaque) -> int:
    left, right = _quantity(one), _quantity(other)
    return (left > right) - (left < right)


# ------------------------------------------------------------------------------------------ URLs & addresses


def _url(text: str) -> Opaque:
    parts = urllib.parse.urlsplit(text)
    if not (parts.scheme and (parts.netloc or text.startswith(f"{parts.scheme}:/"))) and not text.startswith("/"):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid URI for request")
    _ = parts.port  # raises if it is not a number
    return {_URL: text}


def _url_part(choose: Callable[[urllib.parse.SplitResult], Any]) -> Callable[[Opaque], Any]:
    return lambda opaque: choose(urllib.parse.urlsplit(_open(opaque, _URL)))


def _host_name(parts: urllib.parse.SplitResult) -> str:
    host = parts.netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise ValueError(f"IP Address {text!r} parse error: zones and IPv4-mapped addresses are not allowed")
    return address


def _parse_cidr(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    _, slash, length = text.partition("/")
    if not slash or not length.isdigit():
        raise ValueError(f"network address parse error: {text!r}")
    return ipaddress.ip_interface(text)


def _in_cidr(opaque: Opaque, address: str) -> bool:
    return _parse_ip(address) in _cidr(opaque).network


def _has_cidr(opaque: Opaque, other: str) -> bool:
    outer, inner = _cidr(opaque).network, _parse_cidr(other).network
    if isinstance(outer, ipaddress.IPv4Network):
        return isinstance(inner, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, ipaddress.IPv6Network) and inner.subnet_of(outer)


def _ip(opaque: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return _parse_ip(_open(opaque, _IP))


def _cidr(opaque: Any) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return _parse_cidr(_open(opaque, _CIDR))


# ------------------------------------------------------------------------------------------ all together


def _open(opaque: Any, kind: str) -> str:
    value = opaque.get(kind) if isinstance(opaque, dict) else None
    if not isinstance(value, str):
        raise ValueError("no such overload")
    return value


def _can(call: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            call(text)
        except ValueError:
            return False
        return True

    return check


def _calculate(name: str, operation: Callable[[Fraction, Any], Fraction]) -> tuple[Function, Function]:
    return (
        Function(
            name, ("map", "map"), "map", lambda one, other: _make_quantity(operation(_quantity(one), _quantity(other)))
        ),
        Function(name, ("map", "int"), "map", lambda one, other: _make_quantity(operation(_quantity(one), other))),
    )


FUNCTIONS: Final[tuple[Function, ...]] = (
    Function("isSorted", ("list",), "bool", lambda items: all(map(operator.le, items, items[1:]))),
    Function("sum", ("list",), "dyn", sum),
    Function("min", ("list",), "dyn", _not_empty("min", min)),
    Function("max", ("list",), "dyn", _not_empty("max", max)),
    Function("sets.contains", ("list", "list"), "bool", _contains, member=False),
    Function(
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda items, others: _contains(items, others) and _contains(others, items),
        member=False,
    ),
    Function(
        "sets.intersects",
        ("list", "list"),
        "bool",
        lambda items, others: any(item in items for item in others),
        member=False,
    ),
    Function("find", ("string", "string"), "string", _find),
    Function("findAll", ("string", "string"), "list", _find_all),
    Function("findAll", ("string", "string", "int"), "list", _find_some),
    Function("quantity", ("string",), "map", lambda text: _make_quantity(_parse_quantity(text)), member=False),
    Function("isQuantity", ("string",), "bool", _can(_parse_quantity), member=False),
    Function("sign", ("map",), "int", lambda opaque: _compare(opaque, _ZERO)),
    Function("isInteger", ("map",), "bool", _is_integer),
    Function("asInteger", ("map",), "int", _to_integer),
    Function("asApproximateFloat", ("map",), "double", lambda opaque: float(_quantity(opaque))),
    Function("isGreaterThan", ("map", "map"), "bool", lambda one, other: _compare(one, other) > 0),
    Function("isLessThan", ("map", "map"), "bool", lambda one, other: _compare(one, other) < 0),
    Function("compareTo", ("map", "map"), "int", _compare),
    *_calculate("add", operator.add),
    *_calculate("sub", operator.sub),
    Function("url", ("string",), "map", _url, member=False),
    Function("isURL", ("string",), "bool", _can(_url), member=False),
    Function("getScheme", ("map",), "string", _url_part(lambda parts: parts.scheme)),
    Function("getHost", ("map",), "string", _url_part(lambda parts: parts.netloc.rpartition("@")[2])),
    Function("getHostname", ("map",), "string", _url_part(_host_name)),
    Function("getPort", ("map",), "string", _url_part(lambda parts: "" if parts.port is None else str(parts.port))),
    Function(
        "getEscapedPath",
        ("map",),
        "string",
        _url_part(lambda parts: urllib.parse.quote(parts.path, "/%:@!$&'()*+,;=~")),
    ),
    Function(
        "getQuery",
        ("map",),
        "map",
        _url_part(lambda parts: urllib.parse.parse_qs(parts.query, keep_blank_values=True)),
    ),
    Function("ip", ("string",), "map", lambda text: {_IP: str(_parse_ip(text))}, member=False),
    Function("isIP", ("string",), "bool", _can(_parse_ip), member=False),
    Function("ip.isCanonical", ("string",), "bool", lambda text: str(_parse_ip(text)) == text, member=False),
    Function("family", ("map",), "int", lambda opaque: _ip(opaque).version),
    Function("isUnspecified", ("map",), "bool", lambda opaque: _ip(opaque).is_unspecified),
    Function("isLoopback", ("map",), "bool", lambda opaque: _ip(opaque).is_loopback),
    Function("cidr", ("string",), "map", lambda text: {_CIDR: str(_parse_cidr(text))}, member=False),
    Function("isCIDR", ("string",), "bool", _can(_parse_cidr), member=False),
    Function("containsIP", ("map", "string"), "bool", _in_cidr),
    Function("containsIP", ("map", "map"), "bool", lambda one, other: _in_cidr(one, str(_ip(other)))),
    Function("containsCIDR", ("map", "string"), "bool", _has_cidr),
    Function("containsCIDR", ("map", "map"), "bool", lambda one, other: _has_cidr(one, str(_cidr(other)))),
    Function("prefixLength", ("map",), "int", lambda opaque: _cidr(opaque).network.prefixlen),
    Function("masked", ("map",), "map", lambda opaque: {_CIDR: str(_cidr(opaque).network)}),
)
