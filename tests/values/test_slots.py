from __future__ import annotations

import uuid
from collections import Counter

import pytest

from kopf._values.slots import (
    ALL_SLOTS,
    SLOT_COUNT,
    Slots,
    bridge_gaps,
    describe_slots,
    get_slot,
    make_shard_selector,
    merge_slots,
)


@pytest.mark.parametrize(
    ("uid", "digest"),
    [  # the vectors of the authors of FNV
        ("", 0xCBF29CE484222325),
        ("a", 0xAF63DC4C8601EC8C),
        ("b", 0xAF63DF4C8601F1A5),
        ("foobar", 0x85944171F73967E8),
        ("chongo was here!\n", 0x46810940EFF5F915),
    ],
)
def test_slots_are_the_top_bytes_of_fnv_1a(uid: str, digest: int) -> None:
    assert get_slot(uid) == digest >> 56


def test_malformed_uids_have_slots_too() -> None:
    assert get_slot("\ud800") in ALL_SLOTS


def test_random_uids_are_spread_evenly() -> None:
    uids = (str(uuid.uuid5(uuid.NAMESPACE_OID, str(n))) for n in range(20_000))
    counts = Counter(get_slot(uid) for uid in uids)
    assert counts.keys() == ALL_SLOTS
    mean = 20_000 / SLOT_COUNT
    assert max(counts.values()) < mean * 1.6
    assert min(counts.values()) > mean * 0.6


@pytest.mark.parametrize(
    ("slots", "ranges", "text"),
    [
        (frozenset(), [], "none"),
        (frozenset({7}), [range(7, 8)], "7"),
        (frozenset({0, 1, 2, 7, 9, 10}), [range(3), range(7, 8), range(9, 11)], "0-2, 7, 9-10"),
        (ALL_SLOTS, [range(256)], "0-255"),
    ],
)
def test_slots_are_merged_and_described(slots: Slots, ranges: list[range], text: str) -> None:
    assert merge_slots(slots) == ranges
    assert describe_slots(slots) == text


@pytest.mark.parametrize(
    ("slots", "selector"),
    [
        (frozenset(), ""),
        (
            frozenset(range(128)),
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
        ),
        (
            frozenset({1, 2, 254, 255}),
            "shardRange(object.metadata.uid, '0x0100000000000000', '0x0300000000000000') || "
            "shardRange(object.metadata.uid, '0xfe00000000000000', '0x10000000000000000')",
        ),
        (ALL_SLOTS, "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"),
    ],
)
def test_slots_are_selected_on_the_server(slots: Slots, selector: str) -> None:
    assert make_shard_selector(slots) == selector


@pytest.mark.parametrize(
    ("limit", "added"), [(4, set()), (5, set()), (3, {2}), (2, {2, 5, 6}), (1, {2, 5, 6, *range(8, 200)})]
)
def test_gaps_are_bridged_from_the_smallest_on(limit: int, added: set[int]) -> None:
    slots = frozenset({0, 1, 3, 4, 7, 200})
    assert bridge_gaps(slots, limit) == slots | added


def test_nothing_has_no_gaps() -> None:
    assert bridge_gaps(frozenset(), 1) == frozenset()
