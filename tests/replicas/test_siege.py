"""A short siege, for every day; see ``make siege`` for the long one."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from tests.replicas.besieging import Plan, besiege
from tests.replicas.journal import (
    Call,
    Disturbance,
    Stamp,
    collect_calls,
    find_doubles,
    find_falling_tokens,
    find_gaps,
    find_overlaps,
)


async def check_siege(folder: pathlib.Path, mode: str) -> None:
    folder.mkdir()
    plan = Plan(
        duration=7, objects=10, replicas=3, lease=3, pause=1, changes=5, seed=1, mode=mode, loop="asyncio", spare=20
    )
    report = await besiege(plan, folder)
    assert not report.failures, report.describe()
    assert report.changes > 10
    assert len(report.disturbances) > 5


@pytest.mark.timeout(300)
async def test_sieges(tmp_path: pathlib.Path) -> None:
    """Of both modes at once, as they wait for most of the time."""
    await asyncio.gather(*[check_siege(tmp_path / mode, mode) for mode in ("shards", "leader")])


def make_call(replica: str, begun: float, last: float, *, token: int = 1, kind: str = "change") -> Call:
    return Call(replica, "obj", f"{kind}-{replica}-{begun}", token, "123", begun, last, is_done=True)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([("a", 1, 2), ("b", 2, 3)], 0),
        ([("a", 1, 2), ("b", 1.9, 3)], 1),
        ([("a", 1, 9), ("a", 2, 3), ("b", 4, 5)], 1),
        ([("a", 1, 9), ("a", 2, 3)], 0),
    ],
)
def test_overlaps(calls: list[tuple[str, float, float]], expected: int) -> None:
    assert len(find_overlaps([make_call(*args) for args in calls])) == expected


def test_what_is_interrupted_was_in_hand_until_the_stamp_before() -> None:
    stamps = [
        Stamp(1.0, "a", "obj", "change-a-1", "begin", "7 123"),
        Stamp(2.0, "a", "obj", "change-a-1", "step", ""),
        Stamp(9.0, "a", "obj", "change-a-1", "interrupted", "CancelledError"),
    ]
    assert collect_calls(stamps) == [Call("a", "obj", "change-a-1", 7, "123", 1.0, 2.0)]


@pytest.mark.parametrize(
    ("former", "latter", "replica", "expected"), [(1, 2, "b", 0), (2, 1, "b", 1), (1, 1, "b", 1), (1, 1, "a", 0)]
)
def test_tokens(former: int, latter: int, replica: str, expected: int) -> None:
    calls = [make_call("a", 1, 2, token=former), make_call(replica, 3, 4, token=latter)]
    assert len(find_falling_tokens(calls)) == expected


@pytest.mark.parametrize(("disturbed", "expected"), [(0.0, 1), (9.0, 0)])
def test_gaps(disturbed: float, expected: int) -> None:
    calls = [make_call("a", 1, 2, kind="daemon"), make_call("b", 12, 14, kind="daemon")]
    assert len(find_gaps(calls, [Disturbance(disturbed, "c", "killed")], limit=5)) == expected


@pytest.mark.parametrize(("replica", "expected"), [("a", 0), ("b", 1)])
def test_doubles(replica: str, expected: int) -> None:
    calls = [make_call("a", 1, 2), make_call("b", 12, 14)]
    assert len(find_doubles(calls, [Disturbance(5, replica, "killed")], margin=1)) == expected
