"""The work queue: by examples, and against a model that is too simple to be wrong."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._controller.work_queue import Alarm, WorkQueue


@dataclasses.dataclass
class FakeAlarm:
    """A scheduled call."""

    time: float
    call: Callable[[], Any]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeClock:
    """Calls what is scheduled when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[FakeAlarm] = []

    def call_at(self, when: float, callback: Callable[..., Any], /, *args: Any) -> FakeAlarm:
        alarm = FakeAlarm(when, lambda: callback(*args))
        self.alarms.append(alarm)
        return alarm

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = sorted((alarm for alarm in self.alarms if alarm.time <= self.now), key=lambda alarm: alarm.time)
        for alarm in due:
            self.alarms.remove(alarm)
            if not alarm.is_cancelled:
                alarm.call()

    def count(self) -> int:
        return sum(not alarm.is_cancelled for alarm in self.alarms)


class Bench:
    """A queue with all that it needs."""

    def __init__(self, limit: int = 10) -> None:
        self.limit = limit
        self.clock = FakeClock()
        self.due: list[tuple[str, float]] = []
        self.queue = WorkQueue[str](
            has_room=lambda active, exempt: active < self.limit,
            on_due=lambda key, when: self.due.append((key, when)),
            call_at=self.clock.call_at,
        )

    def take_all(self) -> str:
        keys = ""
        while (key := self.queue.take()) is not None:
            keys += key
        return keys


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("added", "taken"),
    [
        ("", ""),
        ("a", "a"),
        ("abc", "abc"),
        ("aab", "ab"),
        ("aba", "ab"),
        ("ABA", "AB"),
        ("aBc", "Bac"),
        ("abCD", "CDab"),
        ("abA", "Ab"),
        ("Aa", "A"),
        ("abBA", "BA"),
        ("abBAb", "BA"),
    ],
)
def test_the_urgent_ones_are_first_and_each_is_there_once(bench: Bench, added: str, taken: str) -> None:
    for key in added:
        bench.queue.add(key.lower(), urgent=key.isupper())
    assert bench.take_all() == taken.lower()


def test_keys_are_urgent_by_default(bench: Bench) -> None:
    bench.queue.add("a", urgent=False)
    bench.queue.add("b")
    assert bench.take_all() == "ba"


def test_what_has_become_urgent_does_not_keep_its_old_place(bench: Bench) -> None:
    for key, urgent in [("a", False), ("b", False), ("a", True)]:
        bench.queue.add(key, urgent=urgent)
    assert bench.queue.take() == "a"
    bench.queue.done("a")
    bench.queue.add("a", urgent=False)
    assert bench.take_all() == "ba"


def test_a_key_is_never_with_two_workers(bench: Bench) -> None:
    bench.queue.add("a")
    assert bench.queue.take() == "a"
    bench.queue.add("a")
    assert bench.queue.take() is None
    bench.queue.done("a")
    assert bench.queue.take() == "a"
    bench.queue.done("a")
    assert bench.queue.take() is None
    assert len(bench.queue) == 0


def test_a_worker_goes_on_with_what_was_added_meanwhile(bench: Bench) -> None:
    bench.queue.add("a")
    bench.queue.take()
    assert bench.queue.renew("a") is False
    bench.queue.add("a")
    assert bench.queue.renew("a") is True
    assert bench.queue.renew("a") is False
    bench.queue.done("a")
    assert len(bench.queue) == 0


def test_a_worker_does_not_go_on_when_the_queue_is_held(bench: Bench) -> None:
    bench.queue.add("a")
    bench.queue.take()
    bench.queue.add("a")
    bench.queue.hold()
    assert bench.queue.renew("a") is False
    bench.queue.done("a")
    assert bench.queue.take() is None
    bench.queue.release()
    assert bench.queue.take() == "a"


@pytest.mark.parametrize(
    ("limit", "exempt", "taken"),
    [
        (0, 0, ""),
        (1, 0, "a"),
        (2, 0, "ab"),
        (1, 1, "a"),
        (9, 0, "abc"),
    ],
)
def test_no_more_are_taken_at_once_than_permitted(limit: int, exempt: int, taken: str) -> None:
    bench = Bench(limit)
    for key in "abc":
        bench.queue.add(key)
    assert bench.take_all() == taken
    bench.queue.exempt += exempt
    assert bench.take_all() == "abc"[limit : limit + exempt]
    bench.queue.exempt -= exempt
    bench.limit += 1
    expected = "abc"[limit + exempt : limit + 1]
    assert bench.take_all() == expected


def test_it_is_told_if_a_key_is_new() -> None:
    queue = Bench().queue
    assert queue.add("a")
    assert not queue.add("a")
    assert queue.take() == "a"
    assert not queue.add("a")
    queue.done("a")
    assert not queue.add("a")


def test_exempt_keys_are_told_of() -> None:
    asked: list[tuple[int, int]] = []
    queue = WorkQueue[str](
        has_room=lambda active, exempt: not asked.append((active, exempt)),  # type: ignore[func-returns-value]
        on_due=lambda key, when: None,
        call_at=FakeClock().call_at,
    )
    for key in "abc":
        queue.add(key)
    queue.take()
    queue.take()
    queue.exempt += 1
    queue.take()
    assert asked == [(0, 0), (1, 0), (1, 1)]


def test_barred_keys_are_dropped() -> None:
    barred = {"a"}
    queue = WorkQueue[str](
        has_room=lambda active, exempt: True,
        on_due=lambda key, when: None,
        call_at=FakeClock().call_at,
        is_barred=barred.__contains__,
    )
    queue.add("a")
    queue.add("b")
    assert queue.take() == "b"
    assert not queue.waiting
    queue.add("b")
    barred.add("b")
    assert not queue.renew("b")
    barred.clear()
    assert queue.renew("b")


def test_exemptions_add_up() -> None:
    bench = Bench(1)
    for key in "abcd":
        bench.queue.add(key)
    bench.queue.exempt += 1
    bench.queue.exempt += 1
    assert bench.take_all() == "abc"
    bench.queue.exempt -= 1
    bench.queue.done("a")
    assert bench.take_all() == ""
    bench.queue.done("b")
    assert bench.take_all() == "d"


def test_alarms_go_off_in_time_and_once(bench: Bench) -> None:
    bench.queue.set_alarm("a", 2.0)
    bench.queue.set_alarm("b", 1.0)
    bench.clock.advance(0.5)
    assert bench.due == []
    bench.clock.advance(10)
    assert bench.due == [("b", 1.0), ("a", 2.0)]
    bench.clock.advance(10)
    assert len(bench.due) == 2
    assert len(bench.queue) == 0


@pytest.mark.parametrize(
    ("times", "due"),
    [
        ([1.0, None], []),
        ([None], []),
        ([1.0, 1.0], [("a", 1.0)]),
        ([1.0, 3.0], [("a", 3.0)]),
        ([3.0, 1.0], [("a", 1.0)]),
        ([1.0, None, 2.0], [("a", 2.0)]),
    ],
)
def test_there_is_at_most_one_alarm_for_a_key(
    bench: Bench,
    times: list[float | None],
    due: list[tuple[str, float]],
) -> None:
    for when in times:
        bench.queue.set_alarm("a", when)
    assert bench.clock.count() == len(due)
    bench.clock.advance(10)
    assert bench.due == due


@pytest.mark.parametrize("make_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
@pytest.mark.parametrize("delay", [-1.0, 0.0, 0.0002, 0.0108])
def test_alarms_are_told_apart_in_real_event_loops(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    delay: float,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: list[Alarm] = []
        due = loop.create_future()

        def call_at(when: float, callback: Callable[..., Any], /, *args: Any) -> Alarm:
            calls.append(loop.call_at(when, callback, *args))
            return calls[-1]

        queue = WorkQueue[str](
            has_room=lambda active, exempt: True,
            on_due=lambda key, when: due.set_result((key, when)),
            call_at=call_at,
        )
        when = loop.time() + delay
        for planned in (when - 60, when, when):
            queue.set_alarm("a", planned)
        assert len(calls) == 2  # the same time again costs nothing
        assert await due == ("a", when)
        assert len(queue) == 0

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


def test_an_alarm_can_be_set_again_when_it_goes_off() -> None:
    clock = FakeClock()
    due: list[float] = []

    def repeat(key: str, when: float) -> None:
        due.append(when)
        queue.set_alarm(key, when + 1)

    queue = WorkQueue[str](has_room=lambda active, exempt: active < 1, on_due=repeat, call_at=clock.call_at)
    queue.set_alarm("a", 1.0)
    for _ in range(3):
        clock.advance(1)
    assert due == [1.0, 2.0, 3.0]


def test_alarms_go_off_for_what_is_held_or_being_worked_on(bench: Bench) -> None:
    bench.queue.add("a")
    bench.queue.take()
    bench.queue.hold()
    bench.queue.set_alarm("a", 1.0)
    bench.clock.advance(1)
    assert bench.due == [("a", 1.0)]


def test_a_closed_queue_gives_nothing_and_takes_nothing(bench: Bench) -> None:
    for key in "abc":
        bench.queue.add(key, urgent=key == "a")
    bench.queue.take()
    bench.queue.set_alarm("b", 1.0)
    bench.queue.add("a")
    bench.queue.close()
    bench.queue.release()
    bench.queue.add("d")
    bench.queue.set_alarm("d", 1.0)
    assert bench.queue.is_closed
    assert bench.queue.is_held
    assert bench.clock.count() == 0
    assert bench.queue.renew("a") is False
    bench.queue.done("a")
    assert bench.queue.take() is None
    assert len(bench.queue) == 0


def test_a_discarded_key_has_neither_its_turn_nor_its_time(bench: Bench) -> None:
    for key in "abc":
        bench.queue.add(key)
        bench.queue.set_alarm(key, 1.0)
    bench.queue.discard("a")
    bench.queue.discard("unknown")
    bench.clock.advance(2.0)
    assert (bench.take_all(), bench.due) == ("bc", [("b", 1.0), ("c", 1.0)])


def test_the_length_counts_every_key_once(bench: Bench) -> None:
    bench.queue.add("a")
    bench.queue.take()
    bench.queue.add("a")
    bench.queue.set_alarm("a", 1.0)
    bench.queue.add("b")
    bench.queue.set_alarm("c", 1.0)
    assert len(bench.queue) == 3
    assert [bench.queue.is_active(key) for key in "abc"] == [True, False, False]


class Model:
    """What a queue does, in the simplest way; everything is told to both, and must be the same."""

    def __init__(self) -> None:
        self.bench = Bench(limit=2)
        self.queue = self.bench.queue
        self.waiting: list[tuple[str, bool]] = []  # in the order of addition
        self.active: dict[str, bool] = {}
        self.alarms: dict[str, float] = {}
        self.exempt = 0
        self.is_held = self.is_closed = False

    def play(self, number: int) -> None:
        """Do what is encoded by the number."""
        number, index = divmod(number, 12)
        key = "abcd"[number % 4]
        actions = (
            lambda: self.add(key, urgent=number >= 4),
            lambda: self.add(key, urgent=number < 4),
            self.take,
            self.take,
            self.renew,
            self.done,
            lambda: self.set_alarm(key, None if number >= 16 else number // 4),
            lambda: self.let_the_time_pass(number),
            lambda: self.exempt_one_more(number % 2 == 0),
            lambda: setattr(self.bench, "limit", number % 4),
            self.hold if number % 2 else self.release,
            self.close if number == 0 else self.release,
        )
        actions[index]()
        assert len(self.queue) == len({key for key, _ in self.waiting} | {*self.active} | {*self.alarms})
        assert self.bench.clock.count() == len(self.alarms)
        assert all(self.queue.is_active(key) is (key in self.active) for key in "abcd")

    def _add(self, key: str, urgent: bool) -> None:
        if key in self.active:
            self.active[key] = True
        elif not self.is_closed and (key, True) not in self.waiting and (key, urgent) not in self.waiting:
            self.waiting = [item for item in self.waiting if item[0] != key] + [(key, urgent)]

    def add(self, key: str, urgent: bool) -> None:
        self.queue.add(key, urgent=urgent)
        self._add(key, urgent)

    def take(self) -> None:
        key = self.queue.take()
        expected = next(iter(sorted(self.waiting, key=lambda item: not item[1])), None)
        if self.is_held or expected is None or len(self.active) - self.exempt >= self.bench.limit:
            assert key is None
            return
        assert key == expected[0]
        self.waiting.remove(expected)
        self.active[key] = False

    def renew(self) -> None:
        for key, is_added in self.active.items():
            assert self.queue.renew(key) is (is_added and not self.is_held)
            self.active[key] = is_added and self.is_held

    def done(self) -> None:
        if self.active:
            key = next(iter(self.active))
            self.queue.done(key)
            if self.active.pop(key):
                self._add(key, urgent=True)

    def set_alarm(self, key: str, delay: int | None) -> None:
        when = None if delay is None else self.bench.clock.now + delay
        self.queue.set_alarm(key, when)
        if not self.is_closed:
            self.alarms.pop(key, None)
            if when is not None:
                self.alarms[key] = when

    def let_the_time_pass(self, seconds: int) -> None:
        self.bench.due.clear()
        self.bench.clock.advance(seconds)
        due = {key: when for key, when in self.alarms.items() if when <= self.bench.clock.now}
        assert sorted(self.bench.due) == sorted(due.items())
        self.alarms = {key: when for key, when in self.alarms.items() if key not in due}

    def exempt_one_more(self, is_entering: bool) -> None:
        change = 1 if is_entering and self.exempt < len(self.active) else -1 if self.exempt else 0
        self.queue.exempt += change
        self.exempt += change

    def hold(self) -> None:
        self.queue.hold()
        self.is_held = True

    def release(self) -> None:
        self.queue.release()
        self.is_held = self.is_closed

    def close(self) -> None:
        self.queue.close()
        self.is_held = self.is_closed = True
        self.waiting.clear()
        self.alarms.clear()


@settings(max_examples=300)  # they are cheap, and judge the broken queues of `make mutants`
@given(st.binary(max_size=60))
def test_it_does_the_same_as_the_model(actions: bytes) -> None:
    model = Model()
    for number in actions:
        model.play(number)


def test_positions_of_those_who_wait(bench: Bench) -> None:
    for key, urgent in [("a", False), ("b", False), ("c", True), ("a", True)]:
        bench.queue.add(key, urgent=urgent)
    assert [bench.queue.get_position(key) for key in "cabx"] == [0, 1, 2, None]
    assert bench.queue.take() == "c"
    assert [bench.queue.get_position(key) for key in "cab"] == [None, 0, 1]
