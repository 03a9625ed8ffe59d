"""How much memory documents take when they are decoded is told before that: never too little, not much too much."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from kopf._values import codec
from kopf._values.decoded_sizes import estimate_decoded_size

COUNT = 5_000


def measure(data: bytes) -> int:
    tracemalloc.start()
    try:
        value = codec.decode(data)
        size, _ = tracemalloc.get_traced_memory()
        del value
    finally:
        tracemalloc.stop()
    return size


@pytest.mark.parametrize(
    "item",
    [
        {},
        [],
        [[]],
        [{}],
        [0],
        {"a": {}},
        {"a": 1},
        {"a": [1.5]},
        12345678901,
        -1.5,
        None,
        True,
        "",
        "ab",
        "é",
        "😀",
        "😀" + "a" * 50,
        {f"k{n}": n * 1000 for n in range(6)},
        {f"k{n}": n * 1000 for n in range(11)},
        {"": ""},
        "\\",
        '"',
        '",',
        '\\"{',
    ],
    ids=repr,
)
@pytest.mark.parametrize("ascii", [True, False])
def test_it_is_never_more(item: Any, ascii: bool) -> None:
    data = json.dumps([item] * COUNT, ensure_ascii=ascii, separators=(",", ":")).encode()
    size = measure(data)
    assert size <= estimate_decoded_size(data, enough=0)
    assert size <= estimate_decoded_size(data, enough=1 << 60)


@pytest.mark.parametrize("count", [1, 5, 6, 1000, 5461, 43690, 43691, 174762, 174763])
def test_dicts_of_many_members(count: int) -> None:
    """They grow by leaps."""
    data = json.dumps({f"{n:x}": n for n in range(count)}).encode()
    assert measure(data) <= estimate_decoded_size(data, enough=0)


@pytest.mark.parametrize("text", [",", "{[", ":", '"a":{},', "\\", '\\"', '"', "a"])
def test_what_is_in_texts_is_not_counted(text: str) -> None:
    """Documents have documents in them: in config maps, in annotations."""
    data = json.dumps({"a": text * 100_000, "b": [text * 1000] * 100, "c": {text: text}}).encode()
    assert estimate_decoded_size(data, enough=0) < 1.1 * len(data) + 100 * 1000
    assert estimate_decoded_size(data, enough=1 << 60) >= estimate_decoded_size(data, enough=0)


def test_usual_objects_are_not_overestimated() -> None:
    item = {"name": "container", "image": "registry.example.com/some/image:1.2.3", "env": [{"name": "A", "value": "b"}]}
    data = json.dumps({"spec": {"containers": [item] * 1000}}).encode()
    assert estimate_decoded_size(data, enough=0) < 3 * measure(data)
