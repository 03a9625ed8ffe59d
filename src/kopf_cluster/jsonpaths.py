"""
The subset of Kubernetes' JSONPath that printer columns and selectable fields use.

Supported: ``.field``, ``['field']``, ``[0]``, ``[-1]``, ``[*]``, ``..field`` at any depth, and the filters
``[?(@.path=="text")]``, ``[?(@.path!="text")]``, ``[?(@.path)]``; with or without the braces and the leading ``$``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Step: TypeAlias = Callable[[list[Any]], list[Any]]

_TOKEN: Final = re.compile(
    r"""
    (?P<descent>\.(?=\.[^.\[]) | \.\.(?=\[))
    | \.(?P<field>(?:\\.|[^.\[\]\\])+)
    | \[\s*'(?P<quoted>[^']*)'\s*\]
    | \[\s*"(?P<doubled>[^"]*)"\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | (?P<any>\[\*\])
    | \[\?\(\s*@(?P<path>[^=!<>)\s]*)\s*(?:(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+))?\s*\)\]
""",
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    """A parsed path: a chain of steps, each from found values to what is found in them."""

    text: str
    steps: tuple[Step, ...]

    def find(self, value: Any) -> list[Any]:
        values = [value]
        for step in self.steps:
            values = step(values)
        return values

    def show(self, value: Any) -> str:
        """Return the first found value as a text, which is empty if there is nothing."""
        return as_text(next(iter(self.find(value)), None))


def parse(text: str) -> Path:
    """Parse the path or raise `ValueError`."""
    rest = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[Step] = []
    pos = 0
    while pos < len(rest) and rest != ".":
        match = _TOKEN.match(rest, pos)
        if match is None:
            raise ValueError(f"unsupported or malformed JSONPath {text!r} at {rest[pos:]!r}")
        steps.append(_make_step(match))
        pos = match.end()
    return Path(text, tuple(steps))


def _make_step(match: re.Match[str]) -> Step:
    if match["index"] is not None:
        return _index(int(match["index"]))
    if match["any"]:
        return _any
    if match["descent"]:
        return _descend
    if match["path"] is not None:
        wanted = match["value"].strip("\"'") if match["value"] is not None else None
        return _filter(parse(match["path"]), match["op"], wanted)
    if match["quoted"] is not None or match["doubled"] is not None:
        return _field(match["quoted"] if match["quoted"] is not None else match["doubled"])
    return _field(re.sub(r"\\(.)", r"\1", match["field"]))


def _field(name: str) -> Step:
    if name == "*":
        return _any
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _index(place: int) -> Step:
    return lambda values: [
        value[place] for value in values if isinstance(value, list) and -len(value) <= place < len(value)
    ]


def _any(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, list):
            found.extend(value)
        elif isinstance(value, dict):
            found.extend(value.values())
    return found


def _descend(values: list[Any]) -> list[Any]:
    """Find all objects and lists at any depth, the outer ones first."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, (dict, list)):
            found += [value, *_descend(_any([value]))]
    return found


def _filter(path: Path, op: str | None, wanted: str | None) -> Step:
    def accepts(item: Any) -> bool:
        found = path.find(item)
        if op is None:
            return bool(found)
        return bool(found) and (as_text(found[0]) == wanted) is (op == "==")

    return lambda values: [item for item in _any(values) if accepts(item)]


def as_text(value: Any) -> str:
    """Show a found value as text: as in JSON, but strings are without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
