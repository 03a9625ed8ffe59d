"""The panels: what the page shows beside the objects, i.e. queues, daemons, indices, peers, errors."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from kopf._controller.observer import ControllerView, Observer
from kopf._controller.pausing import Pause
from kopf._insight.console.history import WARNING, History
from kopf._insight.console.texts import cut, show_value

_MAX_PEERS = 100
_MAX_KEYS = 20


class Company(Observer):
    """Who else works, and whether the operator is paused because of that."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._places: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._pause: Pause | None = None

    def peers_seen(self, place: str, identity: str, records: Mapping[str, Any]) -> None:
        self._places[place] = identity, records

    @property
    def pause(self) -> list[str]:
        """Why the operator is paused; empty if it is not."""
        return [] if self._pause is None else [cut(reason) for reason in self._pause.reasons]

    def pause_changed(self, pause: Pause) -> None:
        self._pause = pause
        text = f"paused: {'; '.join(self.pause)}" if self.pause else "not paused"
        self._history.add_own("pause", cut(text), level=WARNING if self.pause else 0)

    def describe(self) -> dict[str, object]:
        """As it goes to the page."""
        now = datetime.datetime.now(datetime.UTC)
        peerings = [_describe_peering(place, *seen, now) for place, seen in [*self._places.items()]]
        return {"pause": self.pause, "peerings": peerings}


def _describe_peering(
    place: str, own: str, records: Mapping[str, Any], now: datetime.datetime
) -> dict[str, object]:
    from kopf._coordination.peers import Peer  # standalone operators have nothing of that in their memory

    peers: list[dict[str, object]] = []
    for identity, record in [*records.items()][:_MAX_PEERS]:
        try:
            peer = Peer.parse(identity, record)
        except ValueError as e:
            peers.append({"identity": cut(identity), "problem": cut(str(e))})
            continue
        age = (now - peer.lastseen).total_seconds()
        peers.append({
            "identity": cut(identity),
            "own": identity == own,
            "priority": peer.priority,
            "lifetime": peer.lifetime,
            "seen": int(peer.lastseen.timestamp() * 1000),
            "alive": age < peer.lifetime,
            "message": peer.message,
        })
    return {"place": place, "peers": peers, "more": max(0, len(records) - _MAX_PEERS)}


class Indices(Observer):
    """The indices of the operator, as soon as anything is served."""

    def __init__(self, secret: set[str]) -> None:
        self._secret = secret
        self._indices: Mapping[str, Any] = {}

    def controller_started(self, controller: ControllerView) -> None:
        self._indices = controller.indices

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
