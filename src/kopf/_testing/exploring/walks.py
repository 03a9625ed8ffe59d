"""
Walks: which states an object goes through, and what it must come out as.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kopf._testing.exploring.boundary_values import Change

Manifest = Mapping[str, Any]


class Walk(NamedTuple):
    """What the object becomes, one by one, and as what it must come out."""

    name: str
    kind: str
    states: Sequence[Manifest]
    expected: Manifest
    ending: str = ""


def make_walks(base: Manifest, changes: Sequence[Change]) -> Iterator[Walk]:
    """Make all walks: each change alone, there and back, then the pairs of them."""
    for change in changes:
        changed = change.apply(base)
        yield Walk(f"created with {change}", "creation", [changed], changed)
        yield Walk(str(change), "change", [base, changed], changed)
        yield Walk(f"{change} and back", "change and back", [base, changed, base], base)
        yield Walk(f"{change}, then deletion", "deletion", [base, changed], changed, "deletion")
    for one, other in itertools.combinations(changes, 2):
        if one.path != other.path:
            changed = other.apply(one.apply(base))
            yield Walk(f"{one}, {other}", "pair", [base, changed], changed)
            yield Walk(f"{one}, {other} and back", "pair and back", [base, changed, base], base)
