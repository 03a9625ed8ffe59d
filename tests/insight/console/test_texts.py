"""How values and patches are shown: bounded, as text, with nothing of Secrets."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from kopf._insight.console.texts import MAX_LINES, cut, show_diff, show_error, show_patch, show_value
from kopf._insight.explaining.redacted_texts import is_secret
from kopf._values.diffs import diff
from kopf._values.resources import Resource

T = TypeVar("T")

LITTLE = 100_000
"""How much memory it may take, in bytes."""

HUGE = {f"key-{i}": {"list": ["x" * 300] * 100} for i in range(1000)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (1.5, "1.5"),
        ("a", '"a"'),
        ([], "[]"),
        ({}, "{}"),
        ({"a": [1, {"b": None}]}, "{a: [1, {b: null}]}"),
        ("two\nlines\r\n", '"two\\nlines\\r\\n"'),
        ("back\\slash\n", '"back\\\\slash\\n"'),
        ("\\", '"\\"'),
        ("<img src=x onerror=alert(1)>", '"<img src=x onerror=alert(1)>"'),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert show_value(value) == text


@pytest.mark.parametrize(
    "value",
    [
        HUGE,
        "x" * 10**6,
        pytest.param(10**5000, id="digits"),
        [[]] * 10**5,
        {"k" * 10**6: 1},
    ],
)
def test_huge_values_are_cut_and_cheap(value: Any) -> None:
    assert len(_show_with_little_memory(lambda: show_value(value))) <= 160


def test_endlessly_deep_values() -> None:
    value: Any = "bottom"
    for _ in range(100_000):
        value = {"a": [value]}
    assert "bottom" not in show_value(value)
    assert len(show_patch({"spec": value}, None, secret=False)) == 1


def test_merge_patches_with_what_was_before() -> None:
    before = {"spec": {"size": 1, "old": "x"}}
    lines = show_patch({"spec": {"size": 2, "old": None}, "status": {"a": {"b": [1]}}}, before, secret=False)
    assert lines == ["~ spec.size: 1 → 2", '- spec.old: "x"', "+ status.a.b: [1]"]


def test_merge_patches_with_nothing_known_before() -> None:
    assert show_patch({"metadata": {"labels": {"a/b": "c"}, "resourceVersion": "5"}}, None, secret=False) == [
        '+ metadata.labels[a/b]: "c"',
    ]


def test_json_patches() -> None:
    changes = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "5"},
        {"op": "replace", "path": "/metadata/finalizers", "value": ["a"]},
        {"op": "remove", "path": "/metadata/annotations/x~1y"},
        {"op": "add", "path": "", "value": {}},
        "nonsense",
    ]
    assert show_patch(changes, None, secret=False) == [
        'metadata.resourceVersion is "5"',
        '+ metadata.finalizers: ["a"]',
        "- metadata.annotations[x/y]",
        "+ (everything): {}",
    ]


def test_large_patches_are_cut() -> None:
    lines = _show_with_little_memory(lambda: show_patch({"spec": HUGE}, None, secret=False))
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "… and more"
    assert sum(map(len, lines)) < 20_000


def _show_with_little_memory(show: Callable[[], T]) -> T:
    """What is cut is not even made: the whole text would take a megabyte, or many."""
    tracemalloc.start()
    try:
        shown = show()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LITTLE
    return shown


SECRET = "c3dvcmRmaXNo"


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"password": SECRET}},
        {"data": SECRET},
        {"stringData": {SECRET: "x"}},
        {"metadata": {"annotations": {"last-applied": f"{{data: {SECRET}}}"}}},
        [{"op": "add", "path": f"/data/{SECRET}", "value": SECRET}, {"op": "test", "path": "/data", "value": SECRET}],
        [{"op": "remove", "path": f"/data/{SECRET}"}],
    ],
)
def test_nothing_of_secrets(changes: Any) -> None:
    lines = show_patch(changes, {"data": {"password": SECRET}}, secret=True)
    assert lines
    assert SECRET not in repr(lines)
    assert "password" not in repr(lines)


def test_diffs() -> None:
    old, new = {"spec": {"a": 1, "b": 2, "c": [1]}}, {"spec": {"a": 1, "b": 3, "d": {"e": 1}}}
    assert show_diff(diff(old, new), secret=False) == ["~ spec.b: 2 → 3", "- spec.c: [1]", "+ spec.d: {e: 1}"]
    assert show_diff(diff(old, new), secret=True) == ["~ spec: •••", "- spec: •••", "+ spec: •••"]


def test_only_the_core_secrets_are_secrets() -> None:
    assert is_secret(Resource("", "v1", "secrets"))
    assert not is_secret(Resource("example.com", "v1", "secrets"))
    assert not is_secret(Resource("", "v1", "configmaps"))


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_errors() -> None:
    assert show_error(KeyError("size")) == "KeyError: 'size'"
    assert show_error(ValueError()) == "ValueError"
    assert show_error(UnprintableError()) == "UnprintableError: (it cannot be shown)"
    assert len(show_error(ValueError("x" * 10**6))) == len(cut("x" * 10**6)) == 500
