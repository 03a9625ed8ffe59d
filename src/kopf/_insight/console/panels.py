"""The panels: what the page shows beside the objects, i.e. queues, daemons, indices, peers, errors."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from kopf._controller.controller_facts import ControllerStarted, PauseChanged
from kopf._coordination.peer_facts import PeersSeen
from kopf._facts.bus import Bus
from kopf._insight.console.history import WARNING, History
from kopf._insight.console.texts import cut, show_value

_MAX_PEERS = 100
_MAX_KEYS = 20


class Company:
    """Who else works, and whether the operator is paused because of that."""

    def __init__(self, bus: Bus, history: History) -> None:
        self._history = history
        self._places: dict[str, PeersSeen] = {}
        self._latest: PauseChanged | None = None
        bus.subscribe(PeersSeen, self._see)
        bus.subscribe(PauseChanged, self._pause)

    def _see(self, fact: PeersSeen) -> None:
        self._places[fact.place] = fact

    @property
    def pause(self) -> list[str]:
        """Why the operator is paused; empty if it is not."""
        return [] if self._latest is None else [cut(reason) for reason in self._latest.pause.reasons]

    def _pause(self, fact: PauseChanged) -> None:
        self._latest = fact
        text = f"paused: {'; '.join(self.pause)}" if self.pause else "not paused"
        self._history.add_own("pause", cut(text), level=WARNING if self.pause else 0)

    def describe(self) -> dict[str, object]:
        """As it goes to the page."""
        now = datetime.datetime.now(datetime.UTC)
        return {"pause": self.pause, "peerings": [_describe_peering(fact, now) for fact in [*self._places.values()]]}


def _describe_peering(fact: PeersSeen, now: datetime.datetime) -> dict[str, object]:
    from kopf._coordination.peers import Peer  # standalone operators have nothing of that in their memory

    peers: list[dict[str, object]] = []
    for identity, record in [*fact.records.items()][:_MAX_PEERS]:
        try:
            peer = Peer.parse(identity, record)
        except ValueError as e:
            peers.append({"identity": cut(identity), "problem": cut(str(e))})
            continue
        age = (now - peer.lastseen).total_seconds()
        peers.append({
            "identity": cut(identity),
            "own": identity == fact.identity,
            "priority": peer.priority,
            "lifetime": peer.lifetime,
            "seen": int(peer.lastseen.timestamp() * 1000),
            "alive": age < peer.lifetime,
            "message": peer.message,
        })
    return {"place": fact.place, "peers": peers, "more": max(0, len(fact.records) - _MAX_PEERS)}


class Indices:
    """The indices of the operator, as soon as anything is served."""

    def __init__(self, bus: Bus, secret: set[str]) -> None:
        self._secret = secret
        self._indices: Mapping[str, Any] = {}
        bus.subscribe(ControllerStarted, self._start)

    def _start(self, fact: ControllerStarted) -> None:
        self._indices = fact.controller.scope.runtime.indices

    def describe(self) -> list[dict[str, object]]:
        """As it goes to the page: how large they are, and some of the keys; no values, as they can be anything."""
        return [self._describe_index(name, index) for name, index in sorted(self._indices.items())]

    def _describe_index(self, name: str, index: Mapping[Any, Any]) -> dict[str, object]:
        items = [*index.items()]
        is_secret = name in self._secret
        keys = [] if is_secret else [[_show_key(key), len(store)] for key, store in items[:_MAX_KEYS]]
        values = sum(len(store) for _, store in items)
        return {"name": name, "keys": len(items), "values": values, "examples": keys, "withheld": is_secret}


def _show_key(key: object) -> str:
    try:
        return show_value(key if isinstance(key, str | tuple | int | float | None) else str(key)[:200])
    except Exception:  # it is the users' class
        return f"(a {type(key).__name__})"
