"""
Slots: the parts of the objects that replicas of an operator share among them.

The slot of an object is the top byte of the hash of its UID: FNV-1a with 64 bits, as in the shard selectors of
Kubernetes 1.36.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

SLOT_COUNT = 256

Slots = frozenset[int]
"""A set of slots, from 0 to 255."""

ALL_SLOTS: Slots = frozenset(range(SLOT_COUNT))

_SLOT_BITS = 8


def get_slot(uid: str) -> int:
    """Get the slot of the object with this UID: from 0 to 255."""
    digest = 0xCBF29CE484222325
    for byte in uid.encode("utf-8", "surrogatepass"):
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest >> (64 - _SLOT_BITS)


def merge_slots(slots: Iterable[int]) -> list[range]:
    """Merge adjacent slots: ``{0, 1, 2, 7}`` becomes ``[range(0, 3), range(7, 8)]``."""
    ranges: list[range] = []
    for slot in sorted(slots):
        if ranges and ranges[-1].stop == slot:
            ranges[-1] = range(ranges[-1].start, slot + 1)
        else:
            ranges.append(range(slot, slot + 1))
    return ranges


def make_shard_selector(slots: Iterable[int]) -> str:
    """
    Make the parameter ``shardSelector`` of lists & watches, by which the server selects the objects of the slots.

    The bounds have exactly 16 digits, except for the end of all slots, which has 17. Without slots, the result is
    empty, and selects everything.
    """
    return " || ".join(
        f"shardRange(object.metadata.uid, '{_make_bound(part.start)}', '{_make_bound(part.stop)}')"
        for part in merge_slots(slots)
    )


def _make_bound(slot: int) -> str:
    return f"0x{slot << (64 - _SLOT_BITS):016x}"


def bridge_gaps(slots: Slots, limit: int) -> Slots:
    """Add as few slots as possible, so that the number of ranges does not exceed the limit."""
    ranges = merge_slots(slots)
    gaps = sorted((range(a.stop, b.start) for a, b in itertools.pairwise(ranges)), key=len)
    return slots.union(*gaps[: max(0, len(ranges) - limit)])


def describe_slots(slots: Iterable[int]) -> str:
    """Describe the slots for humans, e.g. ``0-63, 128``; ``none`` if there are none."""
    parts = merge_slots(slots)
    return ", ".join(f"{p.start}-{p.stop - 1}" if len(p) > 1 else str(p.start) for p in parts) or "none"


def parse_slots(text: str) -> Slots:
    """Parse the result of :func:`describe_slots`. Raises :class:`ValueError` for any other text."""
    slots: set[int] = set()
    for part in [] if text == "none" else text.split(", "):
        first, _, last = part.partition("-")
        slots.update(range(int(first), int(last or first) + 1))
    if not slots <= ALL_SLOTS:
        raise ValueError(f"slots are from 0 to {SLOT_COUNT - 1}")
    return frozenset(slots)
