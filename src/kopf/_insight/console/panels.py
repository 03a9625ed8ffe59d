"""The panels of the page: errors, daemons & timers, indices, peers."""

from __future__ import annotations

import collections
import datetime
import re
import traceback
from collections.abc import Mapping
from typing import Any

from kopf._controller.observer import ControllerView, Observer
from kopf._controller.pausing import Pause
from kopf._handlers.attempts import Outcome
from kopf._handlers.handlers import DaemonHandler, SpawningHandler, TimerHandler
from kopf._insight.backlog import Backlog
from kopf._insight.console.history import WARNING, History, ObjectRecord
from kopf._insight.console.texts import WITHHELD, cut, show_error, show_value
from kopf._values.lru_dict import LRUDict
from kopf._values.records import Record

MAX_GROUPS = 200
_MAX_EXAMPLES = 5
_MAX_FRAMES = 50
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


class GroupedErrors:
    """The errors, grouped by their origin and text. The groups that were not seen for long are forgotten first."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._groups: LRUDict[tuple[str, str, str], dict[str, Any]] = LRUDict(MAX_GROUPS)
        """The groups for the page, by the handler, the text, and the place in the code."""

    def add(self, who: str, error: BaseException, record: ObjectRecord) -> None:
        """Count the error of a handler or of the framework."""
        text = f"{type(error).__name__}: {WITHHELD}" if record.kind.is_secret else show_error(error)
        place = _locate(error)
        key = who, _VARYING.sub("#", text), place
        now = int(self._backlog.now * 1000)
        new = {"who": who, "place": place, "count": 0, "first": now, "examples": {}}
        group = self._groups.obtain(key, new.copy)
        group["text"], group["last"] = text, now
        group["count"] += 1
        examples: dict[int, str] = group["examples"]
        examples.pop(record.id, None)
        examples[record.id] = record.path
        if len(examples) > _MAX_EXAMPLES:
            del examples[next(iter(examples))]

    def describe(self) -> list[dict[str, object]]:
        """Make the content of the panel: the latest groups first, with the latest objects of each."""
        return [{**group, "examples": [*group["examples"].items()]} for group in reversed([*self._groups.values()])]


def _locate(error: BaseException) -> str:
    """Find the innermost line of code that is not in a library."""
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-_MAX_FRAMES, lookup_lines=False
    )
    own = [frame for frame in frames if not any(part in frame.filename for part in _LIBRARIES)] or [*frames]
    return cut(f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}") if own else ""


_LIBRARIES = ("site-packages", "/lib/python", "/kopf/_", "<frozen")


MAX_RUNS = 20_000
"""How many daemons & timers of objects are remembered."""
MAX_SHOWN = 500


class _Run(Record):
    name: str
    sort: str
    state: str = "running"
    at: float = 0.0
    """When the latest run has begun, in seconds since the epoch."""
    next_at: float = 0.0
    count: int = 0
    error: str = ""


class BackgroundRuns:
    """The daemons & timers of all objects, the latest ones last."""

    def __init__(self) -> None:
        self._runs: LRUDict[tuple[str, int], _Run] = LRUDict(MAX_RUNS)

    def begin(self, record: ObjectRecord, handler: SpawningHandler, at: float) -> None:
        """Note that it runs since that time, in seconds since the epoch."""
        sort = "daemon" if isinstance(handler, DaemonHandler) else "timer"
        run = self._runs.obtain((handler.id, record.id), lambda: _Run(record.path, sort))
        run.state, run.at, run.next_at = "running", at, 0.0
        run.count += 1

    def end(self, record: ObjectRecord, handler: SpawningHandler, outcome: Outcome | None, took: float) -> None:
        """Note that it has ended, for now or for good, after so many seconds."""
        run = self._runs.get((handler.id, record.id))
        if run is None:
            return
        if outcome is None or record.state == "gone":
            del self._runs[handler.id, record.id]
            return
        run.error = ""
        if outcome.exception is not None:
            is_secret = record.kind.is_secret
            run.error = type(outcome.exception).__name__ if is_secret else cut(show_error(outcome.exception), 200)
        if not outcome.final:
            run.state, run.next_at = "retrying", run.at + took + (outcome.delay or 0)
        elif run.error:
            run.state = "failed"
        elif isinstance(handler, TimerHandler) and handler.interval is not None:
            run.state, run.next_at = "waiting", _plan_next(handler, run, took)
        elif isinstance(handler, TimerHandler) and handler.idle is not None:
            run.state = "waiting"  # for a change of the object
        else:
            run.state = "done"

    def describe(self) -> dict[str, object]:
        """Make the content of the panel: the counts, and the latest ones."""
        counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        runs = [*self._runs.items()]
        for (handler, _), run in runs:
            counts[handler, run.sort, run.state] += 1
        return {
            "counts": [[*key, count] for key, count in sorted(counts.items())],
            "runs": [
                [handler, id, run.name, run.state, int(run.at * 1000), int(run.next_at * 1000), run.count, run.error]
                for (handler, id), run in runs[: -MAX_SHOWN - 1 : -1]
            ],
        }


def _plan_next(handler: TimerHandler, run: _Run, took: float) -> float:
    interval = handler.interval or 0.0
    return (run.at if handler.sharp and took < interval else run.at + took) + interval


_MAX_PEERS = 100
_MAX_KEYS = 20


class Peering(Observer):
    """The other operators, and whether they pause this one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._places: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._pause: Pause | None = None

    def peers_seen(self, place: str, identity: str, records: Mapping[str, Any]) -> None:
        self._places[place] = identity, records

    @property
    def pause(self) -> list[str]:
        """The reasons of the pause; empty if the operator is not paused."""
        return [] if self._pause is None else [cut(reason) for reason in self._pause.reasons]

    def pause_changed(self, pause: Pause) -> None:
        self._pause = pause
        text = f"paused: {'; '.join(self.pause)}" if self.pause else "not paused"
        self._history.add_own("pause", cut(text), level=WARNING if self.pause else 0)

    def describe(self) -> dict[str, object]:
        """Make the content of the panel."""
        now = datetime.datetime.now(datetime.UTC)
        peerings = [_describe_peering(place, *seen, now) for place, seen in [*self._places.items()]]
        return {"pause": self.pause, "peerings": peerings}


def _describe_peering(place: str, own: str, records: Mapping[str, Any], now: datetime.datetime) -> dict[str, object]:
    from kopf._coordination.peers import Peer  # standalone operators do not load it

    peers: list[dict[str, object]] = []
    for identity, record in [*records.items()][:_MAX_PEERS]:
        try:
            peer = Peer.parse(identity, record)
        except ValueError as e:
            peers.append({"identity": cut(identity), "problem": cut(str(e))})
            continue
        age = (now - peer.lastseen).total_seconds()
        peers.append(
            {
                "identity": cut(identity),
                "own": identity == own,
                "priority": peer.priority,
                "lifetime": peer.lifetime,
                "seen": int(peer.lastseen.timestamp() * 1000),
                "alive": age < peer.lifetime,
                "message": peer.message,
            }
        )
    return {"place": place, "peers": peers, "more": max(0, len(records) - _MAX_PEERS)}


class Indices(Observer):
    """The indices of the operator, once it handles any resource."""

    def __init__(self, secret: set[str]) -> None:
        self._secret = secret
        self._indices: Mapping[str, Any] = {}

    def controller_started(self, controller: ControllerView) -> None:
        self._indices = controller.indices

    def describe(self) -> list[dict[str, object]]:
        """Make the content of the panel: the sizes, and some of the keys; no values, as they can be anything."""
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
