"""
Label and field selectors of lists and watches: text → a predicate over a stored record.

The grammar is that of the Kubernetes documentation ("Labels and Selectors", "Field Selectors"):
equality, inequality, sets, presence, absence, and numeric comparison for labels; equality and inequality
for fields. An empty selector is no predicate at all, so that unfiltered lists cost nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from kopf_cluster import jsonpaths, statuses
from kopf_cluster.kinds.objects import label_value
from kopf_cluster.store.watch_cache import Record

Predicate: TypeAlias = Callable[[Record], bool]
LookUp: TypeAlias = Callable[[Record, str], str]
Requirement: TypeAlias = Callable[[Mapping[str, str]], bool]

_KEY: Final = r"(?P<key>[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_SET: Final = re.compile(_KEY + r"\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL: Final = re.compile(_KEY + r"\s*(?P<op>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)")
_COMPARE: Final = re.compile(_KEY + r"\s*(?P<op>[<>])\s*(?P<value>-?[0-9]{1,19})(?![0-9])")
_PRESENT: Final = re.compile(r"(?P<not>!?)\s*" + _KEY)
_SPACE: Final = re.compile(r"\s*")
_FIELD: Final = re.compile(r"(?P<key>[^=!,]+?)(?P<op>==|=|!=)(?P<value>(?:\\[\\,=]|[^,=\\])*)(?=,|$)")


@functools.lru_cache(maxsize=256)
def parse_labels(text: str) -> Predicate | None:
    """Parse a label selector, or raise the API's "bad request"."""
    requirements: list[Requirement] = []
    pos = _skip(text, 0)
    while pos < len(text):
        requirement, pos = _parse_requirement(text, pos)
        requirements.append(requirement)
        pos = _skip(text, pos)
        if pos < len(text):
            if text[pos] != ",":
                raise statuses.bad_request(
                    f"unable to parse requirement: found '{text[pos:]}', expected: ',' or 'end of string'"
                )
            pos = _skip(text, pos + 1)
            if pos == len(text):
                raise statuses.bad_request("found '', expected: identifier after ','")
    if not requirements:
        return None
    return lambda record: all(requirement(record.labels) for requirement in requirements)


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def _parse_requirement(text: str, pos: int) -> tuple[Requirement, int]:
    if match := _SET.match(text, pos):
        key, values = match["key"], frozenset(value.strip() for value in match["values"].split(","))
        for value in values:
            _check_value(key, value)
        if match["op"] == "in":
            return (lambda labels: labels.get(key) in values), match.end()
        return (lambda labels: labels.get(key) not in values), match.end()
    if match := _EQUAL.match(text, pos):
        key, value = match["key"], match["value"]
        _check_value(key, value)
        if match["op"] == "!=":
            return (lambda labels: labels.get(key) != value), match.end()
        return (lambda labels: labels.get(key) == value), match.end()
    if match := _COMPARE.match(text, pos):
        return _compare(match["key"], match["op"], int(match["value"])), match.end()
    if match := _PRESENT.match(text, pos):
        key = match["key"]
        if match["not"]:
            return (lambda labels: key not in labels), match.end()
        return (lambda labels: key in labels), match.end()
    raise statuses.bad_request(f"unable to parse requirement: found '{text[pos:]}', expected: identifier")


def _check_value(key: str, value: str) -> None:
    """Refuse an invalid value of a label, as it would select nothing."""
    for why in label_value(value):
        raise statuses.bad_request(f'values[0][{key}]: Invalid value: "{value}": {why}')


def _compare(key: str, op: str, bound: int) -> Requirement:
    def requirement(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if op == ">" else value < bound

    return requirement


def parse_fields(text: str, supported: Collection[str], look_up: LookUp | None = None) -> Predicate | None:
    """Parse a field selector; raise the API's "bad request" for a wrong one, and for unsupported fields.

    By default, it selects by the values that are stored with the objects.
    """
    look_up = look_up or field_of
    terms: list[tuple[str, bool, str]] = []
    pos = 0
    while pos < len(text):
        match = _FIELD.match(text, pos)
        if match is None:
            raise statuses.bad_request(f"invalid selector: '{text}'; can't understand '{text[pos:]}'")
        field = match["key"].strip()
        if field not in supported and field not in _STANDARD:
            raise statuses.bad_request(f"field label not supported: {field}")
        terms.append((field, match["op"] != "!=", re.sub(r"\\(.)", r"\1", match["value"])))
        pos = match.end() + 1
    if not terms:
        return None
    return lambda record: all((look_up(record, field) == value) is equal for field, equal, value in terms)


_STANDARD: Final = frozenset({"metadata.name", "metadata.namespace"})


def field_of(record: Record, field: str) -> str:
    if field == "metadata.name":
        return record.key[1]
    if field == "metadata.namespace":
        return record.key[0]
    return record.fields.get(field, "")


# Label selectors in objects: ``matchLabels`` and ``matchExpressions``, see "Labels and Selectors".


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector selects the labels. An empty selector selects everything, an absent one nothing."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        _fits(item, labels) for item in selector.get("matchExpressions") or ()
    )


def _fits(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = item.get("key", ""), item.get("values") or ()
    match item.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


# The fields for field selectors of built-in kinds: the paths of their values, and the values of absent fields.
#
# The server selects by the values in memory, where absent fields have zero values. A selector can have
# another name than its field. See "Field Selectors" of the Kubernetes documentation.


@dataclasses.dataclass(frozen=True, slots=True)
class Selectable:
    """A field for field selectors."""

    paths: tuple[jsonpaths.Path, ...]
    """The paths of the value; the first one with a value that is not empty wins."""
    zero: str = ""
    """The value of an absent field."""

    def show(self, obj: Any) -> str:
        return next((text for path in self.paths if (text := path.show(obj))), self.zero)


# By their names in selectors. No other kinds have fields of these names with other meanings.
_PATHS: Final = {
    "source": ("source.component", "reportingComponent"),
    "status.podIP": ("status.podIPs[0].ip", "status.podIP"),
    "status.successful": ("status.succeeded",),
}
_ZEROS: Final = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.successful": "0",
}


def make_selectable(field: str) -> Selectable:
    """Make a field from its name in the stored version."""
    return Selectable(tuple(map(jsonpaths.parse, _PATHS.get(field, (field,)))), _ZEROS.get(field, ""))
