"""
The guarantees of watches under random writers and watchers that reconnect: nothing is lost, nothing is repeated,
the changes of an object come in their order, the versions grow, and everybody ends up with the same state.

The environment variable ``KOPF_TEST_EVENTS`` says how many changes are made, 2,000 by default. How often the watchers
reconnect and how far they go back, depends on it.
"""

from __future__ import annotations

import asyncio
import collections
import random
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence

import aiohttp
import pytest

from kopf.testing import LocalCluster
from tests.cluster.rounds.watchers import (
    Event,
    ForgetfulWatcher,
    ListingWatcher,
    SleepyWatcher,
    State,
    StreamingWatcher,
    Watcher,
    list_state,
)
from tests.cluster.rounds.writers import (
    DEFINITION,
    EVENTS,
    LANES,
    LAST,
    OBJECTS,
    WRITERS,
    Fact,
    Spec,
    Writer,
    make_counter,
)

SEED = 1


@pytest.mark.timeout(900)
async def test_nothing_is_lost_or_repeated_or_reordered() -> None:
    # Bookmarks are much more frequent than usual, so that there are many versions in them to go on from.
    async with (
        LocalCluster(bare=True, seed=SEED, history=2**28, bookmark_interval=0.01) as cluster,
        _connect(cluster) as session,
    ):
        cluster.apply(DEFINITION)
        start = (await list_state(session)).version
        writers = [Writer(number, OBJECTS, SEED) for number in range(WRITERS)]
        diligent = Watcher(session, _randomizer("diligent"), start, allowWatchBookmarks="true")
        forgetful = ForgetfulWatcher(session, _randomizer("forgetful"), start)
        by_label = ForgetfulWatcher(session, _randomizer("label"), start, labelSelector="lane=red")
        by_field = Watcher(
            session, _randomizer("field"), start, fieldSelector="spec.lane!=red", allowWatchBookmarks="true"
        )
        stateful = [
            ListingWatcher(session, _randomizer("listing")),
            StreamingWatcher(session, _randomizer("streaming")),
        ]
        watchers: list[Watcher] = [diligent, forgetful, by_label, by_field, *stateful]
        async with asyncio.TaskGroup() as group:
            for watcher in watchers:
                group.create_task(watcher.watch())
            await asyncio.gather(*(writer.write(cluster, EVENTS // WRITERS) for writer in writers))
            last = [make_counter(LAST, Spec(lane=lane), owner="") for lane in LANES]
            cluster.apply(last[0])  # it is seen by those who select it; others see it when it becomes so
            cluster.apply(last[1])
        final = await list_state(session, limit=10)
        assert await list_state(session) == final

    truth = diligent.log
    assert len(truth) >= EVENTS
    _check_facts(truth, {name: facts for writer in writers for name, facts in writer.facts.items()})
    assert forgetful.log == truth
    assert by_label.log == list(_select(truth, lambda lane: lane == "red"))
    assert by_field.log == list(_select(truth, lambda lane: lane != "red"))
    _check_states(
        truth,
        [
            State(final.version, {k: v for k, v in final.objects.items() if k != LAST}),
            *(state for watcher in stateful for state in watcher.states),
        ],
    )
    if EVENTS >= 2_000:  # it has tested what it is for; with less events, that is a matter of luck
        assert min(watcher.connections for watcher in watchers) > EVENTS / 10_000
        assert min(forgetful.repeated, by_label.repeated) > EVENTS / 100
    if EVENTS >= 100_000:  # they come every second or so
        assert min(diligent.bookmarks, by_field.bookmarks) > 10


@pytest.mark.timeout(900)
async def test_those_who_are_late_see_the_same() -> None:
    """The server remembers little, and tells so: then all begins anew with a list, and leads to the same states."""
    async with LocalCluster(bare=True, seed=SEED, history=131 * EVENTS) as cluster, _connect(cluster) as session:
        cluster.apply(DEFINITION)
        start = (await list_state(session)).version
        truth = Watcher(session, random.Random(), start)
        writers = [Writer(number, OBJECTS, SEED) for number in range(4)]
        sleepy = [SleepyWatcher(session, _randomizer(f"sleepy-{number}"), sleep=EVENTS // 2) for number in range(3)]
        async with asyncio.TaskGroup() as group:
            # The truth is never late: much more is remembered than what the writers send at once.
            group.create_task(truth.watch_in_one_go())
            for watcher in sleepy:
                group.create_task(watcher.watch())
            await asyncio.gather(*(writer.write(cluster, EVENTS * 3 // 8) for writer in writers))
            cluster.apply(make_counter(LAST, Spec(lane=LANES[0]), owner=""))

    _check_facts(truth.log, {name: facts for writer in writers for name, facts in writer.facts.items()})
    _check_states(truth.log, [state for watcher in sleepy for state in watcher.states])
    assert min(watcher.expirations for watcher in sleepy) >= 1


def _connect(cluster: LocalCluster) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    return aiohttp.ClientSession(
        cluster.url,
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Authorization": f"Bearer {cluster.token}"},
    )


def _randomizer(name: str) -> random.Random:
    return random.Random(f"{SEED}-{name}")


def _check_facts(truth: Sequence[Event], facts: dict[str, list[Fact]]) -> None:
    """Compare what was seen with what was written, object by object."""
    versions = [event.version for event in truth]
    assert versions == sorted(set(versions))
    seen: dict[str, list[Event]] = collections.defaultdict(list)
    for event in truth:
        seen[event.name].append(event)
    assert seen.keys() == facts.keys()
    for name, events in seen.items():
        assert [
            Fact(event.type, event.n, event.lane, fact.version and event.version)
            for event, fact in zip(events, facts[name], strict=True)
        ] == facts[name]


def _select(truth: Iterable[Event], accepts: Callable[[str], bool]) -> Iterator[Event]:
    """Tell what is to be seen with a selector: the objects come and go as they begin and cease to be selected."""
    known: dict[str, Event] = {}
    for event in truth:
        before = known.pop(event.name, None)
        if event.type != "DELETED" and accepts(event.lane):
            known[event.name] = event
            yield event._replace(type="MODIFIED" if before else "ADDED")
        elif before is not None:  # the last state in which it was selected, but with the version of the change
            yield event._replace(type="DELETED", n=before.n, lane=before.lane)


def _check_states(truth: Iterable[Event], states: Iterable[State]) -> None:
    """Compare the states of some moments with those that follow from the events before."""
    rest = collections.deque(truth)
    objects: dict[str, int] = {}
    for state in sorted(states, key=lambda state: state.version):
        while rest and rest[0].version <= state.version:
            event = rest.popleft()
            if event.type == "DELETED":
                del objects[event.name]
            else:
                objects[event.name] = event.n
        assert state.objects == objects
