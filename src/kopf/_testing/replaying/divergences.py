"""
Divergences: where a replayed operator does something else than the recorded one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Kind = Literal["new", "missing", "different", "order", "outcome", "ending"]
"""
What is wrong: something ``new`` that was never recorded; something that is ``missing``; a request with a ``different``
content; another ``order`` about one object; another ``outcome`` of a handler; another ``ending`` of the operator.
"""
_SHOWN = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence:
    """One difference."""

    time: float
    """When, in seconds since the beginning of the recording."""
    kind: Kind
    place: str
    """The object that it is about; nothing if it is about the operator."""
    text: str
    details: tuple[str, ...] = ()
    """What differs, line by line: ``-`` was recorded, ``+`` is new."""

    def __str__(self) -> str:
        lines = [f"{self.time:12.3f}  {self.text}", *(f"{'':14}  {line}" for line in self.details)]
        return "\n".join(lines)


def describe(divergences: Sequence[Divergence]) -> Iterator[str]:
    """Tell of them, object by object: the first ones of each, as most of the others come from these."""
    places: dict[str, list[Divergence]] = {}
    for divergence in sorted(divergences, key=lambda divergence: divergence.time):
        places.setdefault(divergence.place, []).append(divergence)
    for place, own in places.items():
        yield f"{place or 'the operator'}:"
        yield from map(str, own[:_SHOWN])
        if len(own) > _SHOWN:
            yield f"{'':14}... and {len(own) - _SHOWN} more"


def cut(lines: Iterable[str], limit: int = 10) -> tuple[str, ...]:
    """Take not too many of the lines."""
    taken = [*lines]
    rest = (f"... and {len(taken) - limit} more",) if len(taken) > limit else ()
    return (*taken[:limit], *rest)
