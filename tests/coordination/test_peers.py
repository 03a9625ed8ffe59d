"""Peering: who is alive, and who has the priority; without any clocks and I/O."""

from __future__ import annotations

import datetime
import getpass
import re
import socket
from typing import Any

import pytest

from kopf._coordination.peer_identity import make_identity
from kopf._coordination.peers import MAX_LIFETIME, Peer, Peers, name_peers
from kopf._settings.settings import MAX_PRIORITY

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
START = 1000.0
"""The time of the event loop as of then."""


def make_record(*, age: float = 0, lifetime: float = 60, priority: int = 0) -> dict[str, Any]:
    lastseen = NOW - datetime.timedelta(seconds=age)
    return {"priority": priority, "lifetime": lifetime, "lastseen": lastseen.isoformat()}


def look(peers: Peers, records: object, after: float = 0) -> None:
    now = NOW + datetime.timedelta(seconds=after)
    assert not peers.take(records, now=now, time=START + after)


def get_alive(peers: Peers, after: float = 0) -> set[str]:
    standing = peers.get_standing(-1, time=START + after)
    return {peer.identity for peer in standing.seniors}


# ------------------------------------------------------------------ records


@pytest.mark.parametrize(("extra", "shown"), [({}, ""), ({"message": "hello"}, ", message='hello'")], ids=str)
def test_records_are_written_as_they_are_read(extra: dict[str, str], shown: str) -> None:
    record = {"priority": 5, "lifetime": 60, "lastseen": "2026-11-21T00:09:42.047643+00:00", **extra}
    peer = Peer.parse("me", record)
    assert peer.make_record() == record
    assert repr(peer) == f"<Peer me: priority=5, lifetime=60, lastseen='2026-11-21T00:09:42.047643+00:00'{shown}>"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"lastseen": "2026-01-01T00:00:00+00:00"}, Peer("x", 0, 60, NOW)),
        ({"lastseen": "2026-01-01T00:00:00", "priority": "7", "lifetime": "1.5"}, Peer("x", 7, 1.5, NOW)),
        ({"lastseen": "2026-01-01T02:00:00+02:00", "lifetime": 1e99}, Peer("x", 0, MAX_LIFETIME, NOW)),
        ({"lastseen": "2026-01-01T00:00:00Z", "unknown": {}}, Peer("x", 0, 60, NOW)),
    ],
    ids=str,
)
def test_sloppy_records(record: object, expected: Peer) -> None:
    assert Peer.parse("x", record) == expected


@pytest.mark.parametrize(
    "record",
    [
        None,
        1,
        "text",
        [],
        {},
        {"priority": 1},
        {"lastseen": None},
        {"lastseen": 1},
        {"lastseen": "yesterday"},
        {"lastseen": "2026-01-01T00:00:00", "priority": "high"},
        {"lastseen": "2026-01-01T00:00:00", "priority": None},
        {"lastseen": "2026-01-01T00:00:00", "priority": "9" * 4000},
        {"lastseen": "2026-01-01T00:00:00", "priority": 2**63},
        {"lastseen": "2026-01-01T00:00:00", "priority": -(2**63)},
        {"lastseen": "2026-01-01T00:00:00", "priority": 1e300},
        {"lastseen": "2026-01-01T00:00:00", "lifetime": []},
        {"lastseen": "2026-01-01T00:00:00", "priority": float("inf")},
    ],
    ids=str,
)
def test_broken_records_are_reported_once_and_ignored(record: object) -> None:
    peers = Peers("me")
    records = {"broken": record, "good": make_record()}
    assert peers.take(records, now=NOW, time=START).keys() == {"broken"}
    assert peers.take(records, now=NOW, time=START) == {}
    assert get_alive(peers) == {"good"}


@pytest.mark.parametrize("priority", [MAX_PRIORITY, -MAX_PRIORITY])
def test_the_largest_priorities(priority: int) -> None:
    peers = Peers("me")
    look(peers, {"other": make_record(priority=priority)})
    assert peers.get_standing(priority, time=START).rivals
    assert bool(peers.get_standing(0, time=START).seniors) is (priority > 0)


@pytest.mark.parametrize("status", [None, {}, "text", 1, []])
def test_nobody_is_there(status: object) -> None:
    peers = Peers("me")
    look(peers, status)
    assert not peers.get_standing(0, time=START).is_paused
    assert peers.get_next_death(time=START) is None
    assert not peers.has_us


# ------------------------------------------------------------------ standings


def test_priorities() -> None:
    peers = Peers("me")
    look(
        peers,
        {
            "me": make_record(priority=99),
            "lower": make_record(priority=4),
            "same": make_record(priority=5),
            "higher": make_record(priority=6),
        },
    )
    standing = peers.get_standing(5, time=START)
    assert [peer.identity for peer in standing.seniors] == ["higher"]
    assert [peer.identity for peer in standing.rivals] == ["same"]
    assert standing.is_paused
    assert peers.get_standing(6, time=START).is_paused
    assert not peers.get_standing(7, time=START).is_paused


def test_replicas_are_one_peer_with_the_highest_of_their_priorities() -> None:
    ours = {"group": "ns/operator"}
    records = {
        "one": make_record(priority=1) | ours,
        "two": make_record(priority=7) | ours,
        "other": make_record(priority=6) | {"group": "elsewhere/operator"},
    }
    replicas, stranger = Peers("me", "ns/operator"), Peers("me")
    for peers in (replicas, stranger):
        look(peers, records)
    assert not replicas.get_standing(0, time=START).is_paused
    assert [peer.identity for peer in stranger.get_standing(0, time=START).seniors] == ["one", "two", "other"]
    look(replicas, {key: records[key] for key in ("one", "other")})
    assert [peer.identity for peer in replicas.get_standing(0, time=START).seniors] == ["other"]


def test_the_time_for_many_records_does_not_grow_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers("me")
    comparisons: list[Peer] = []
    look(peers, {f"peer-{number}": make_record(priority=0) for number in range(100)})

    def compare(one: Peer, other: object) -> bool:
        comparisons.append(one)
        return one is other

    monkeypatch.setattr(Peer, "__eq__", compare)
    assert len(peers.get_standing(0, time=START).rivals) == 100
    assert not comparisons


def test_our_own_record_is_not_a_peer() -> None:
    peers = Peers("me")
    look(peers, {"me": make_record(priority=99)})
    assert peers.has_us
    assert not peers.get_standing(0, time=START).is_paused
    look(peers, {})
    assert not peers.has_us


# ------------------------------------------------------------------ life & death


def test_those_who_were_there_before_are_judged_by_their_timestamps() -> None:
    peers = Peers("me")
    look(peers, {"fresh": make_record(age=10), "dead": make_record(age=60), "old": make_record(age=1e6)})
    assert get_alive(peers) == {"fresh"}
    assert peers.get_next_death(time=START) == START + 50
    assert get_alive(peers, after=49.9) == {"fresh"}
    assert get_alive(peers, after=50) == set()
    assert peers.get_next_death(time=START + 50) is None


def test_the_renewed_ones_live_on_whatever_their_clocks_say() -> None:
    peers = Peers("me")
    look(peers, {"behind": make_record(age=1000), "ahead": make_record(age=-1000)})
    assert get_alive(peers) == {"ahead"}
    assert get_alive(peers, after=60) == set()  # not in 1060 seconds
    look(peers, {"behind": make_record(age=950), "ahead": make_record(age=-1050)}, after=50)
    assert get_alive(peers, after=109) == {"ahead", "behind"}
    assert get_alive(peers, after=110) == set()


def test_those_who_appear_are_alive_whatever_their_clocks_say() -> None:
    peers = Peers("me")
    look(peers, {})
    look(peers, {"behind": make_record(age=1000)}, after=50)
    assert get_alive(peers, after=109) == {"behind"}
    assert get_alive(peers, after=110) == set()
    look(peers, {}, after=60)
    assert get_alive(peers, after=60) == set()


def test_looking_again_at_the_same_record_does_not_prolong_the_life() -> None:
    peers = Peers("me")
    look(peers, {"x": make_record()})
    look(peers, {"x": make_record()}, after=30)
    look(peers, {"x": make_record()}, after=59)
    assert get_alive(peers, after=60) == set()


@pytest.mark.parametrize("lifetime", [0, -1])
def test_zero_lifetimes(lifetime: float) -> None:
    peers = Peers("me")
    look(peers, {})
    look(peers, {"x": make_record(lifetime=lifetime)})
    assert get_alive(peers) == set()


def test_remains_are_only_of_those_who_are_dead_for_sure() -> None:
    peers = Peers("me")
    look(peers, {"fresh": make_record(age=10), "old": make_record(age=1e6), "me": make_record(age=1e6)})
    assert set(peers.get_remains(time=START + 59)) == set()  # can be alive, with another clock
    assert set(peers.get_remains(time=START + 60)) == {"old"}
    assert set(peers.get_remains(time=START + 110)) == {"fresh", "old"}


# ------------------------------------------------------------------ identities


def test_identities_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_ID", "operator-xyz")
    assert make_identity() == "operator-xyz"
    assert make_identity(manual=True) == f"{getpass.getuser()}@{socket.gethostname()}"


def test_users_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert re.fullmatch(r"\d+@.+", make_identity(manual=True))


def test_peers_are_named_in_words() -> None:
    peers = [Peer(f"root@host/{number}", number, 60, NOW) for number in range(12)]
    assert name_peers(peers[:2]) == "root@host/0 (priority 0), root@host/1 (priority 1)"
    assert name_peers(peers).endswith("root@host/9 (priority 9) and 2 more")
