from __future__ import annotations

from kopf._values.lru_dict import LRUDict


def test_what_was_not_used_for_long_is_forgotten_first() -> None:
    items = LRUDict[str, int](2)
    for value, key in enumerate(["a", "b", "a", "c"]):
        items.note(key, value)
    assert [*items.items()] == [("a", 2), ("c", 3)]


def test_items_are_made_once() -> None:
    items = LRUDict[str, list[int]](2)
    first = items.obtain("a", list)
    for key in "bcd":
        items.obtain(key, list)
        assert items.obtain("a", list) is first
    assert [*items] == ["d", "a"]
