from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable

import pytest

from kopf._controller.own_writes import OwnWrites
from kopf._values.resources import is_newer


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("2", "1", True),
        ("1", "2", False),
        ("1", "1", False),
        ("10", "9", True),
        ("9", "10", False),
        ("100", "99", True),
        ("1", "", True),
        ("", "1", False),
        ("18446744073709551617", "18446744073709551616", True),  # beyond any integers of the machine
        ("100000000000000000000000000000", "99999999999999999999999999999", True),
    ],
)
def test_versions_are_compared_as_integers_of_any_length(one: str, two: str, expected: bool) -> None:
    assert is_newer(one, two) is expected


def write(writes: OwnWrites, version: str, *, previous: str, seen: tuple[str, ...] = ()) -> None:
    """Pass through a write, during which some versions come from the stream."""
    writes.start()
    for other in seen:
        writes.is_news(other)
    writes.finish(version, previous=previous)


@pytest.fixture(params=[True, False], ids=["comparable", "incomparable"])
def writes(request: pytest.FixtureRequest) -> OwnWrites:
    return OwnWrites(comparable=request.param)


def test_without_own_writes_everything_is_news(writes: OwnWrites) -> None:
    assert [writes.is_news(version) for version in ("3", "4", "5")] == [True, True, True]
    assert writes.expected is None


def test_the_echo_after_the_response_is_not_news_but_what_follows_is(writes: OwnWrites) -> None:
    write(writes, "6", previous="4")
    assert [writes.is_news(version) for version in ("6", "7")] == [False, True]


def test_what_comes_before_the_echo_is_stale(writes: OwnWrites) -> None:
    write(writes, "6", previous="4")
    assert [writes.is_news(version) for version in ("5", "6", "7")] == [False, False, True]


def test_the_echo_before_the_response_is_not_expected_any_more(writes: OwnWrites) -> None:
    write(writes, "6", previous="4", seen=("5", "6"))
    assert writes.expected is None
    assert writes.is_superseded("6", "6")
    assert writes.is_news("7")


def test_what_comes_after_the_early_echo_is_not_superseded_by_the_response(writes: OwnWrites) -> None:
    write(writes, "6", previous="4", seen=("6", "7"))
    assert writes.expected is None
    assert not writes.is_superseded("7", "6")


def test_what_comes_before_the_response_with_no_echo_is_superseded(writes: OwnWrites) -> None:
    write(writes, "6", previous="4", seen=("5",))
    assert writes.expected is not None
    assert writes.is_superseded("5", "6")


def test_nothing_is_expected_of_a_write_that_has_changed_nothing(writes: OwnWrites) -> None:
    write(writes, "4", previous="4")
    assert writes.expected is None
    assert writes.is_news("5")


def test_the_echo_of_the_previous_write_can_come_during_the_next_one(writes: OwnWrites) -> None:
    write(writes, "5", previous="4")
    write(writes, "6", previous="5", seen=("5",))
    assert writes.expected is not None
    assert not writes.is_news("6")


def test_echoes_of_both_writes_can_come_during_the_next_one(writes: OwnWrites) -> None:
    write(writes, "5", previous="4")
    write(writes, "6", previous="5", seen=("5", "6"))
    assert writes.expected is None


def test_after_giving_up_everything_is_news(writes: OwnWrites) -> None:
    write(writes, "6", previous="4")
    writes.give_up()
    assert writes.expected is None
    assert writes.is_news("7")


def test_comparable_versions_need_no_echo() -> None:
    writes = OwnWrites(comparable=True)
    write(writes, "9", previous="4")
    assert not writes.is_news("8")
    assert writes.is_news("10")
    assert writes.expected is None


def test_incomparable_versions_are_never_compared() -> None:
    writes = OwnWrites(comparable=False)
    write(writes, "b", previous="c")
    assert not writes.is_news("x")
    assert not writes.is_news("b")
    assert writes.is_news("a")


class World:
    """
    An object that is changed by us and by others, with the stream of its states being late and losing some of them.

    What is done here with the answers is what the controller does with them: the latest news wait in ``state``, what
    is presumed to be stale is kept as ``unconfirmed`` until the echo comes or the patience is over.
    """

    def __init__(self, *, comparable: bool, changes: int) -> None:
        self.comparable = comparable
        self.changes_left = changes
        self.server = 8  # so that the length of the versions changes soon
        self.stream: list[int] = []
        self.delivered = {self.server}
        self.handling: int | None = None
        self.response: int | None = None
        self.state: int | None = self.server
        self.unconfirmed: int | None = None
        self.awaited: int | None = None  # our write whose echo is still to come
        self.last_written = 0
        self.last_handled = 0
        self.writes = OwnWrites(comparable=comparable)
        self.writes.is_news(self.version(self.server))

    def version(self, number: int) -> str:
        return str(number) if self.comparable else str(number * 7919 % 10007)

    def list_actions(self) -> list[Callable[[World], None]]:
        """What can happen next."""
        is_busy = self.handling is not None
        conditions = {
            World.others_write: self.changes_left > 0,
            World.we_write: self.changes_left > 0 and is_busy,
            World.we_write_what_is_there_already: is_busy and self.response != self.server,
            World.begin_handling: self.state is not None and not is_busy,
            World.finish_handling: is_busy,
            World.deliver: bool(self.stream),
            World.lose_all_but_the_latest: len(self.stream) > 1,
            World.lose_patience: self.can_lose_patience(),
        }
        return [action for action, is_possible in conditions.items() if is_possible]

    def others_write(self) -> None:
        self.changes_left -= 1
        self.server += 1
        self.stream.append(self.server)

    def we_write(self) -> None:
        self.others_write()
        self.response = self.server

    def we_write_what_is_there_already(self) -> None:
        self.response = self.server

    def begin_handling(self) -> None:
        assert self.state is not None
        assert self.state >= self.last_written, "A state from before our own write is handled."
        assert self.state >= self.last_handled, "The time goes back."
        self.handling, self.state = self.state, None
        self.last_handled = self.handling
        self.writes.start()

    def finish_handling(self) -> None:
        handled, self.handling = self.handling, None
        response, self.response = self.response, None
        if response is None or response == handled or handled is None:
            return  # nothing was written
        self.last_written = response
        self.writes.finish(self.version(response), previous=self.version(handled))
        self.awaited = response if self.writes.expected is not None else None
        if not self.is_delivered(response):
            assert self.writes.expected is not None, "The echo is still to come."
        elif self.unconfirmed is None:
            assert self.writes.expected is None, "The echo has come and will not come again."
        waiting, is_superseded = self.state, True
        if waiting is not None:
            is_superseded = self.writes.is_superseded(self.version(waiting), self.version(response))
        if is_superseded:
            self.state = response
            if waiting != response and self.writes.expected is not None and not self.comparable:
                self.unconfirmed = waiting or self.unconfirmed  # if the echo never comes, it was newer

    def is_delivered(self, number: int) -> bool:
        return max(self.delivered) >= number if self.comparable else number in self.delivered

    def deliver(self) -> None:
        number = self.stream.pop(0)
        self.delivered.add(number)
        is_news = self.writes.is_news(self.version(number))
        assert is_news is self.would_be_news(number), "It is (not) news."
        if is_news:
            self.state, self.unconfirmed = number, None
        elif self.writes.expected is not None:
            self.unconfirmed = number
        else:
            self.unconfirmed = None

    def would_be_news(self, number: int) -> bool:
        if self.awaited is None:
            return True
        is_overtaken = number > self.awaited and self.comparable
        if number == self.awaited or is_overtaken:
            self.awaited = None
        return is_overtaken

    def lose_all_but_the_latest(self) -> None:
        """E.g. by listing the objects anew."""
        del self.stream[:-1]

    def can_lose_patience(self) -> bool:
        """Tell if the stream has nothing for us for a long time."""
        return not self.comparable and self.unconfirmed is not None and self.handling is None and not self.stream

    def lose_patience(self) -> None:
        self.writes.give_up()
        self.awaited = None
        self.state, self.unconfirmed = self.unconfirmed, None

    def come_to_rest(self) -> None:
        """When nothing changes any more, the last state is the one that is handled at the end."""
        if self.handling is not None:
            self.finish_handling()
        while self.stream:
            self.deliver()
        if self.can_lose_patience():
            self.lose_patience()
        if self.state is not None:
            self.begin_handling()
        assert self.last_handled == self.server, "The last state is lost for good."

    def fork(self) -> World:
        clone = copy.copy(self)
        clone.stream, clone.delivered = [*self.stream], {*self.delivered}
        clone.writes = copy.deepcopy(self.writes)
        return clone

    def get_key(self) -> object:
        return pickle.dumps([self.__dict__ | {"delivered": sorted(self.delivered), "writes": None}, self.writes])


@pytest.mark.parametrize("comparable", [True, False])
def test_in_any_order_of_events_no_news_are_lost_and_no_echoes_are_news(comparable: bool) -> None:
    origin = World(comparable=comparable, changes=4)
    known, queue = {origin.get_key()}, deque([(origin, "")])
    while queue:
        world, history = queue.popleft()
        for action in world.list_actions():
            fork, story = world.fork(), f"{history} {action.__name__}"
            try:
                action(fork)
                fork.fork().come_to_rest()
            except AssertionError as e:
                raise AssertionError(f"{e} It happens so:{story}") from e
            if (key := fork.get_key()) not in known:
                known.add(key)
                queue.append((fork, story))
    assert len(known) > 1000


@pytest.mark.parametrize(
    ("comparable", "version", "is_superseded"),
    [
        (True, "1", True),
        (True, "2", True),
        (True, "3", False),
        (False, "1", True),
        (False, "2", True),
        (False, "3", True),
    ],
)
def test_until_the_echo_only_comparable_versions_can_be_newer_than_the_response(
    comparable: bool, version: str, is_superseded: bool
) -> None:
    writes = OwnWrites(comparable=comparable)
    write(writes, "2", previous="1")
    assert writes.expected is not None
    assert writes.is_superseded(version, "2") is is_superseded
