"""
Generated hostile inputs: of any depth, size, types, and encodings. The same seed gives the same inputs.

How many of every kind: ``KOPF_HOSTILE_INPUTS``, a few by default, 10,000 in `make hostile`.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

T = TypeVar("T")

COUNT = int(os.environ.get("KOPF_HOSTILE_INPUTS") or 30)

_DEPTHS = st.sampled_from([1, 2, 10, 100, 400, 900, 950, 990, 1000, 1100, 5000, 9900, 15_000])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "",
            "\0",
            "\x1b[2J",
            "\n",
            "\u2028",
            "x" * 10_000,
            "0001-01-01T00:00:00",
            "9999-12-31T23:59:59Z",
            "999999999999h",
            "true",
            "false",
            "/",
            "../..",
            10**30,
            -(10**30),
            1e308,
            float("nan"),
        ]
    )
)
_KEYS = st.sampled_from(
    [
        *(
            "metadata",
            "annotations",
            "labels",
            "finalizers",
            "spec",
            "status",
            "kind",
            "items",
            "name",
            "uid",
            "",
            "\0",
        ),
        *("started", "stopped", "delayed", "purpose", "retries", "success", "failure", "message", "subrefs", "digest"),
        *(
            "priority",
            "lifetime",
            "lastseen",
            "clusters",
            "users",
            "contexts",
            "token",
            "exec",
            "env",
            "command",
            "args",
        ),
    ]
) | st.text(max_size=5)


def values() -> st.SearchStrategy[Any]:
    """Any JSON-like values."""
    return st.recursive(
        _SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6),
        max_leaves=20,
    )


@st.composite
def documents(draw: st.DrawFn) -> str:
    """JSON: deep, flat, or broken."""
    text = json.dumps(draw(values()), ensure_ascii=draw(st.booleans()))
    depth = draw(_DEPTHS)
    match draw(st.sampled_from(["plain", "plain", "plain", "list", "dict", "unclosed", "cut", "tail"])):
        case "list":
            return "[" * depth + text + "]" * depth
        case "dict":
            key = json.dumps(draw(_KEYS))
            return f"{{{key}:" * depth + text + "}" * depth
        case "unclosed":
            return draw(st.sampled_from(["[", '{"a":', '"', "\\"])) * depth
        case "cut":
            return text[: draw(st.integers(0, len(text)))]
        case "tail":
            return text + draw(st.text(max_size=10))
    return text


@functools.cache
def get_documents() -> tuple[str, ...]:
    """The documents for all kinds of inputs: in the large size, it takes minutes to generate them."""
    return tuple(examples(documents(), seed=1))


def get_crafted_texts() -> list[str]:
    """Values of annotations: any text that can be stored, with many of them in one cluster."""
    return [text[:5000].encode("utf-8", "replace").decode("utf-8", "replace") for text in get_documents()]


def examples(strategy: st.SearchStrategy[T], *, seed: int, count: int = COUNT) -> list[T]:
    """Generate inputs in advance, as they are then used in one running operator, not in a new one for each."""
    found: list[T] = []
    for attempt in range(100):  # a run can be shorter than asked, e.g. if the drawn values are too large
        if len(found) < count:
            _collect(strategy, seed + 1000 * attempt, count - len(found), found)
    assert len(found) >= count
    return found[:count]


def _collect(strategy: st.SearchStrategy[T], seed: int, count: int, found: list[T]) -> None:
    @seeded(seed)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
