"""Patterns of namespaces."""

from __future__ import annotations

import re

import pytest

from kopf._operator.namespace_patterns import NamespacePattern, check_patterns, get_exact, matches, matches_any


@pytest.mark.parametrize(
    ("pattern", "served", "others"),
    [
        ("ns1", ["ns1"], ["ns", "ns11", "ns2"]),
        ("*-pr-123-*", ["a-pr-123-b", "-pr-123-"], ["a-pr-123", "pr-123-b", "a-pr-1234-b"]),
        ("ns?", ["ns1", "nsx"], ["ns", "ns12"]),
        ("*", ["ns1", "default"], []),
        ("!*-pr-123-*", ["default", "a-pr-124-b"], ["a-pr-123-b"]),
        ("!ns1", ["ns2", "ns11"], ["ns1"]),
        (
            "myapp-*,!*-pr-*,*-pr-123",
            ["myapp-live", "myapp-pr-123"],
            ["myapp-pr-456", "otherapp-live", "otherapp-pr-123"],
        ),
        ("ns1,ns2", ["ns1"], ["ns2", "ns3"]),  # the first one is decisive
        ("!a*,!*z", ["b"], ["a", "az", "bz"]),
        ("!a*,ab*", ["b", "ab", "abc"], ["a", "ac"]),
        ("ns*, !ns2", ["ns1"], ["ns2"]),
        (re.compile("ns[12]"), ["ns1", "ns2"], ["ns3", "ns11", "xns1"]),
    ],
    ids=str,
)
def test_patterns(pattern: NamespacePattern, served: list[str], others: list[str]) -> None:
    assert [name for name in served + others if matches(name, pattern)] == served


def test_any_of_several_patterns_is_enough() -> None:
    assert [name for name in ("a", "b", "c", "dd") if matches_any(name, ["a", "!*?,b", "d?"])] == ["a", "b", "dd"]
    assert not matches_any("a", [])


def test_exact_names() -> None:
    assert get_exact(["a", "b-1", "c*", "d?", "!e", "f,g", re.compile("h")]) == {"a", "b-1"}


def test_duplicates_are_removed() -> None:
    assert check_patterns(["b", "a*", "b", re.compile("x"), re.compile("x")]) == ["b", "a*", re.compile("x")]


@pytest.mark.parametrize("pattern", ["", "!", "a,", ",a", "a,,b", "a,!", " "])
def test_empty_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pattern))):
        check_patterns(["a", pattern])
