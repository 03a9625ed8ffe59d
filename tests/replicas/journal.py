"""
The journal of the replicas, and what it proves: one owner at any moment, nobody left alone, tokens that only grow.

A replica has an object in hand from the first stamp of a call to the last one. What it stamps when it is interrupted,
does not count: it was told to let go, and does nothing more.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Stamp:
    """One line."""

    time: float
    replica: str
    name: str
    call: str
    what: str
    details: str


@dataclasses.dataclass
class Call:
    """All stamps of one call."""

    replica: str
    name: str
    id: str
    token: int
    details: str
    begun: float
    last: float
    """The last moment when it certainly had the object in hand."""
    is_done: bool = False

    @property
    def kind(self) -> str:
        return self.id.partition("-")[0]


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What has happened to a replica."""

    time: float
    replica: str
    what: str


def read_journal(path: pathlib.Path) -> list[Stamp]:
    """Read all stamps in the order of time."""
    stamps = []
    for line in path.read_text().splitlines():
        time, replica, name, call, what, details = line.split(" ", 5)
        stamps.append(Stamp(float(time), replica, name, call, what, details))
    return sorted(stamps, key=lambda stamp: stamp.time)


def collect_calls(stamps: Iterable[Stamp]) -> list[Call]:
    """Put the stamps together by calls, in the order of their beginnings."""
    calls: dict[str, Call] = {}
    for stamp in stamps:
        if stamp.what == "begin":
            token, _, details = stamp.details.partition(" ")
            calls[stamp.call] = Call(stamp.replica, stamp.name, stamp.call, int(token), details, stamp.time, stamp.time)
        elif stamp.what != "interrupted":
            calls[stamp.call].last = stamp.time
            calls[stamp.call].is_done = stamp.what == "end"
    return list(calls.values())


def _group(calls: Iterable[Call]) -> Mapping[str, list[Call]]:
    grouped: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        grouped[call.name].append(call)
    return grouped


def find_overlaps(calls: Iterable[Call]) -> list[str]:
    """Find the objects that were in two hands at once."""
    found = []
    for name, group in _group(calls).items():
        latest: dict[str, Call] = {}
        for call in group:
            others = [other for other in latest.values() if other.replica != call.replica and other.last > call.begun]
            found += [
                f"{name}: {item.id} until {item.last:.3f}, but {call.id} since {call.begun:.3f}" for item in others
            ]
            known = latest.get(call.replica)
            if known is None or known.last < call.last:
                latest[call.replica] = call
    return found


def find_falling_tokens(calls: Iterable[Call]) -> list[str]:
    """Find the calls with an older token than a call of somebody else before."""
    found = []
    for name, group in _group(calls).items():
        for former, latter in itertools.pairwise(group):
            if latter.token < former.token or (latter.token == former.token and latter.replica != former.replica):
                found.append(f"{name}: {latter.id} has the token {latter.token} after {former.id} with {former.token}")
    return found


def find_gaps(calls: Iterable[Call], disturbances: Sequence[Disturbance], *, limit: float) -> list[str]:
    """Find when a daemon was missing for longer than the limit after the latest disturbance, in seconds."""
    times = sorted(item.time for item in disturbances)
    found = []
    for name, group in _group(call for call in calls if call.kind == "daemon").items():
        for former, latter in itertools.pairwise(group):
            index = bisect.bisect_left(times, latter.begun)
            since = max(former.last, times[index - 1] if index else 0.0)
            if latter.begun - since > limit:
                found.append(f"{name}: no daemon from {former.last:.3f} to {latter.begun:.3f}")
    return found


def find_doubles(calls: Iterable[Call], disturbances: Sequence[Disturbance], *, margin: float) -> list[str]:
    """Find the changes that were handled twice, though nothing had happened to the first replica meanwhile."""
    found = []
    done = [call for call in calls if call.kind == "change" and call.is_done]
    for name, group in _group(done).items():
        first: dict[str, Call] = {}
        for call in group:
            former = first.setdefault(call.details, call)
            if former is not call and not any(
                item.replica == former.replica and former.begun - margin < item.time < call.begun
                for item in disturbances
            ):
                found.append(f"{name}: {call.details} was handled by {former.id}, and then by {call.id}")
    return found
