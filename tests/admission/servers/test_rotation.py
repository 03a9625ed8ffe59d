"""The rotation of certificates: years in no time, as it is only a matter of decisions."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kopf._admission.servers.rotation import Certificate, Rotation, advance

BEGINNING = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)
NAMES = ("localhost",)


class Clock:
    """Now."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGINNING


def make_issue(clock: Clock, lifetime: datetime.timedelta = 360 * DAY) -> Callable[[Sequence[str]], Certificate]:
    numbers = itertools.count(1)

    def issue(names: Sequence[str]) -> Certificate:
        pem = f"certificate {next(numbers)}\n".encode()
        return Certificate(pem, b"key of " + pem, tuple(names), clock.now, clock.now + lifetime)

    return issue


def test_the_first_certificate_is_used_at_once() -> None:
    clock = Clock()
    rotation = advance(None, NAMES, clock.now, make_issue(clock))
    assert rotation.identity.certificate == b"certificate 1\n"
    assert rotation.identity.bundle == b"certificate 1\n"
    assert rotation.changes_at == BEGINNING + 240 * DAY


def test_nothing_is_done_before_it_is_time() -> None:
    clock = Clock()
    rotation = advance(None, NAMES, clock.now, make_issue(clock))
    clock.now += 240 * DAY - HOUR
    assert advance(rotation, NAMES, clock.now, make_issue(clock)) is rotation


def test_the_next_one_is_announced_first_and_used_later() -> None:
    clock = Clock()
    issue = make_issue(clock)
    rotation = advance(None, NAMES, clock.now, issue)
    clock.now = rotation.changes_at
    rotation = advance(rotation, NAMES, clock.now, issue)
    assert rotation.identity.certificate == b"certificate 1\n"
    assert rotation.identity.bundle == b"certificate 1\ncertificate 2\n"
    assert rotation.changes_at == clock.now + HOUR
    clock.now += HOUR / 2
    assert advance(rotation, NAMES, clock.now, issue) is rotation
    clock.now += HOUR / 2
    rotation = advance(rotation, NAMES, clock.now, issue)
    assert rotation.identity.certificate == b"certificate 2\n"
    assert rotation.identity.key == b"key of certificate 2\n"
    assert rotation.identity.bundle == b"certificate 1\ncertificate 2\n"


def test_the_previous_one_is_forgotten_in_the_next_round() -> None:
    clock = Clock()
    issue = make_issue(clock)
    rotation = advance(None, NAMES, clock.now, issue)
    for _ in range(3):
        clock.now = rotation.changes_at
        rotation = advance(rotation, NAMES, clock.now, issue)
    assert rotation.identity.bundle == b"certificate 2\ncertificate 3\n"


def test_expired_ones_are_replaced_at_once() -> None:
    clock = Clock()
    issue = make_issue(clock)
    rotation = advance(None, NAMES, clock.now, issue)
    clock.now += 1000 * DAY
    rotation = advance(rotation, NAMES, clock.now, issue)
    assert rotation.identity.certificate == b"certificate 2\n"


def test_announced_ones_replace_expired_ones() -> None:
    clock = Clock()
    issue = make_issue(clock)
    rotation = advance(None, NAMES, clock.now, issue)
    clock.now = rotation.current.expires_at - HOUR / 4
    rotation = advance(rotation, NAMES, clock.now, issue)
    assert rotation.next is not None
    clock.now = rotation.current.expires_at
    rotation = advance(rotation, NAMES, clock.now, issue)
    assert rotation.identity.certificate == b"certificate 2\n"
    assert rotation.next is None


def test_new_names_need_a_new_certificate_that_keeps_the_old_names() -> None:
    """Or two versions of an operator with different names would replace each other's certificates forever."""
    clock = Clock()
    issue = make_issue(clock)
    rotation = advance(None, ["a", "b"], clock.now, issue)
    rotation = advance(rotation, ["b", "c"], clock.now, issue)
    assert set(rotation.current.names) == {"a", "b", "c"}
    assert rotation.identity.bundle == b"certificate 1\ncertificate 2\n"  # for those that still use the first one
    assert advance(rotation, ["a", "b"], clock.now, issue) is rotation
    assert advance(rotation, ["b", "c"], clock.now, issue) is rotation


def test_new_names_when_the_next_certificate_does_not_have_them() -> None:
    clock = Clock()
    issue = make_issue(clock)
    rotation = advance(None, ["a"], clock.now, issue)
    clock.now = rotation.changes_at
    rotation = advance(rotation, ["a"], clock.now, issue)
    clock.now += DAY
    rotation = advance(rotation, ["b"], clock.now, issue)
    assert set(rotation.current.names) == {"a", "b"}
    assert rotation.next is None


@given(st.lists(st.integers(min_value=1, max_value=24 * 60), min_size=50, max_size=150))
def test_whatever_the_checks_the_certificate_is_valid_and_announced(minutes: list[int]) -> None:
    """Certificates live for 10 days here, and checks come at least once a day."""
    clock = Clock()
    issue = make_issue(clock, 10 * DAY)
    rotation: Rotation | None = None
    announced: dict[bytes, datetime.datetime] = {}
    for step in minutes:
        before = rotation
        rotation = advance(rotation, NAMES, clock.now, issue)
        identity = rotation.identity
        assert identity.bundle is not None
        assert clock.now < rotation.current.expires_at
        for pem in identity.bundle.splitlines(keepends=True):
            announced.setdefault(pem, clock.now)
        if before is not None and before.identity.certificate != identity.certificate:
            assert announced[identity.certificate] <= clock.now - HOUR
            assert before.identity.certificate in identity.bundle
        assert identity.bundle.count(b"\n") <= 2
        clock.now += datetime.timedelta(minutes=step)
