"""Exploring finds bugs that one event alone reveals, with scripts."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from kopf.testing import Report
from tests.testing.exploring import single_events

ROOT = pathlib.Path(__file__).parent.parent.parent.parent

BUGS: list[tuple[Callable[..., Report], str, str, str]] = [
    (single_events.late.exploration.explore, "late event", "event 1 late", 'jane is "open", but must be "protected"'),
    (single_events.doubled.exploration.explore, "doubled event", "event 3 doubled", "balance is 99, but must be 100"),
    (single_events.stale.exploration.explore, "stale event", "event 2 stale", "mails is 2, but must be 1"),
]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where scripts are executed by those who copy them


@pytest.mark.parametrize(("explore", "kind", "name", "difference"), BUGS)
@pytest.mark.usefixtures("older_server")
def test_bugs_are_found_by_single_events_only(
    explore: Callable[..., Report],
    kind: str,
    name: str,
    difference: str,
) -> None:
    assert explore(troubles=["view", "watch", "order"], runs=9).failures == []
    failure = explore(troubles=[kind], only=name).failures[0]
    assert failure.name == name
    assert failure.differences == [f"outside: {difference}"]
    assert "simulation.faults." in failure.script
    with pytest.raises(AssertionError) as caught:
        exec(compile(failure.script, "script", "exec"), {})
    assert str(caught.value).splitlines() == [*failure.differences]
