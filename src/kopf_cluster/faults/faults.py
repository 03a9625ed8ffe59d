"""
Trouble on demand: wrong answers, lost answers, slowness, late events, broken and silent watches; seeded, so that it can
be replayed.

A rule says which requests it is for, how often, and what happens to them. The same from another process:
see the administration endpoint.
"""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kopf_cluster.ages import Clock
from kopf_cluster.faults.clients import EVERYBODY, Clients
from kopf_cluster.faults.fault_rules import Action, FaultRule
from kopf_cluster.faults.lagging import Reteller, WatchLag
from kopf_cluster.requests import Call, Request

_MAX_CLOCK_OFFSET: Final = 100 * 365 * 24 * 3600.0

Adviser = Callable[[Call, Request], FaultRule | None]
"""A function that looks at a request, and tells what to do with it if it is not to be answered as usual."""


class WatchDrops(msgspec.Struct, frozen=True):
    """How often watches are cut, in seconds, and whose."""

    period: float
    clients: Clients = EVERYBODY

    def __post_init__(self) -> None:
        if self.period <= 0:
            raise ValueError(f"the period must be positive, not {self.period}")


class ServerControl(msgspec.Struct):
    """How faults reach a running server, from whatever thread."""

    cut: Callable[[bool, Clients], None]
    compact: Callable[[], None]
    changed: Callable[[], None]
    expire_token: Callable[[], None]
    restart: Callable[[bool], None]


_NOWHERE: Final = ServerControl(
    cut=lambda clean, clients: None,
    compact=lambda: None,
    changed=lambda: None,
    expire_token=lambda: None,
    restart=lambda keep_data: None,
)
"""There is nothing to reach before the server is started."""


class Faults:
    """All the trouble that one server makes. The methods may be called from any thread."""

    def __init__(self, seed: int = 0) -> None:
        self.rules: tuple[FaultRule, ...] = ()
        self.watch_drops: WatchDrops | None = None
        """How often watches are cut; never by default."""
        self.silent = False
        """Whether watches stay open but send nothing. What they hold back, they send afterwards."""
        self.duplicating = False
        """Whether watches tell of everything twice."""
        self.paused = False
        """Whether requests are accepted but not answered until resumed."""
        self.frozen: tuple[Clients, ...] = ()
        """Whose requests are not answered, and whose watches are told nothing."""
        self.partitioned: tuple[Clients, ...] = ()
        """Whose connections are broken."""
        self.watch_lag: WatchLag | None = None
        """How late watches tell of changes; at once by default."""
        self.clock = Clock()
        self.advisers: list[Adviser] = []
        """Who is asked of every request what to do with it, before the rules."""
        self.retellers: list[Reteller] = []
        """Who is asked of every event of watches what to send instead, and when; the first answer decides."""
        self.reseed(seed)
        self._used: dict[int, int] = {}
        self._lock = threading.Lock()
        self._control = _NOWHERE

    def bind(self, control: ServerControl | None) -> None:
        self._control = control or _NOWHERE

    def inject(
        self,
        status: int = 500,
        *,
        rate: float = 1.0,
        times: int | None = None,
        action: Action = "answer",
        latency: float = 0.0,
        retry_after: int | None = None,
        message: str = "",
        verb: str | None = None,
        resource: str | None = None,
        method: str | None = None,
        path: str | None = None,
        guarded: bool | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> FaultRule:
        """Add a rule. For each request, the first rule that matches it and whose dice fall so, is applied."""
        rule = FaultRule(
            action=action,
            status=status,
            rate=rate,
            times=times,
            latency=latency,
            retry_after=retry_after,
            message=message,
            verb=verb,
            resource=resource,
            method=method,
            path=path,
            guarded=guarded,
            user=user,
            agent=agent,
        )
        self.replace([*self.rules, rule])
        return rule

    def replace(self, rules: list[FaultRule]) -> None:
        """Set all rules at once."""
        with self._lock:
            self.rules = tuple(rules)
            self._used = {key: count for key, count in self._used.items() if key in map(id, rules)}

    def remove(self, rule: FaultRule) -> None:
        self.replace([other for other in self.rules if other is not rule])

    def clear(self) -> None:
        """End all the trouble."""
        self.replace([])
        self.watch_drops, self.watch_lag = None, None
        self.silent = self.paused = self.duplicating = False
        self.isolate((), ())

    def reseed(self, seed: int) -> None:
        """Begin the sequence of random decisions anew."""
        self._seed = seed
        self._random = random.Random(seed)
        self._streams: collections.Counter[str] = collections.Counter()

    def make_dice(self, resource: str) -> random.Random:
        """Give the dice of the next stream of the resource: whatever happens in others, they fall the same."""
        self._streams[resource] += 1
        return random.Random(f"{self._seed}/{resource}/{self._streams[resource]}")

    def drop_watches_every(
        self,
        seconds: float | None,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Cut watches periodically: all of them, or those of some clients only, as in rules.

        * ``seconds``: the period; none to stop doing so.
        * ``user``: whose watches, by the name of the user.
        * ``agent``: whose watches, by a regular expression to be found in the header ``User-Agent``.
        """
        self.watch_drops = None if seconds is None else WatchDrops(seconds, Clients(user, agent))
        self._control.changed()

    def lag_watches(
        self,
        seconds: float | None,
        up_to: float | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Tell of changes later than the writes are answered; none to end that, and to tell what is held back.

        Every stream, the current and the new ones, is late on its own, and keeps its order.

        * ``seconds``: by how many seconds events are late, or the shortest lag if there is the longest one.
        * ``up_to``: the longest lag, in seconds. The lags are drawn anew for whatever is written at once.
        * ``user``: whose watches are late, by the name of the user; everybody's by default.
        * ``agent``: whose watches are late, by a regular expression to be found in the header ``User-Agent``.

        Raises `ValueError` if the lag is negative or infinite, or the longest one is shorter than the shortest one.
        """
        if seconds is None and up_to is not None:
            raise ValueError("the longest lag needs the shortest one, which can be zero")
        self.watch_lag = (
            None if seconds is None else WatchLag(seconds, seconds if up_to is None else up_to, Clients(user, agent))
        )
        self._control.changed()

    def find_lag(self, request: Request) -> WatchLag | None:
        """Tell how late the stream is that is the answer to the request."""
        lag = self.watch_lag
        return lag if lag is not None and lag.clients.include(request) else None

    def cut_watches(self, *, clean: bool = False, user: str | None = None, agent: str | None = None) -> None:
        """End current watches now, of all clients or of some: by breaking the connections, or properly if clean."""
        self._control.cut(clean, Clients(user, agent))

    def silence_watches(self, silent: bool = True) -> None:
        """Let all watches, the current and the new ones, stay open and send nothing; or end that."""
        self.silent = silent
        self._control.changed()

    def duplicate_events(self, enabled: bool = True) -> None:
        """Let all watches tell of every change twice, or end that."""
        self.duplicating = enabled

    def pause(self) -> None:
        """Hold all requests unanswered until resumed."""
        self.paused = True
        self._control.changed()

    def resume(self) -> None:
        self.paused = False
        self._control.changed()

    def freeze(self, *, user: str | None = None, agent: str | None = None) -> None:
        """Take requests of some clients, but do not answer them, and tell their watches nothing, until they are healed.

        Then what they have asked for is done, if they still wait for it, and they are told what they have missed.
        """
        self.isolate([*self.frozen, Clients(user, agent)], self.partitioned)

    def partition(self, *, user: str | None = None, agent: str | None = None) -> None:
        """Break connections of some clients, the current and the new ones, with nothing done, until they are healed."""
        self.isolate(self.frozen, [*self.partitioned, Clients(user, agent)])

    def heal(self, *, user: str | None = None, agent: str | None = None) -> None:
        """End both for the clients that were named so, or for all if none are named."""
        healed = Clients(user, agent)
        frozen, partitioned = (
            [clients for clients in isolated if healed not in (clients, EVERYBODY)]
            for isolated in (self.frozen, self.partitioned)
        )
        self.isolate(frozen, partitioned)

    def isolate(self, frozen: Iterable[Clients], partitioned: Iterable[Clients]) -> None:
        """Set at once who is frozen and who is partitioned; all others are healed."""
        self.frozen, self.partitioned = tuple(frozen), tuple(partitioned)
        for clients in self.partitioned:
            self._control.cut(False, clients)
        self._control.changed()

    def is_held(self, request: Request) -> bool:
        """Whether the request has to wait until it is answered."""
        return self.paused or any(clients.include(request) for clients in self.frozen)

    def is_silent_for(self, request: Request) -> bool:
        """Whether the stream tells nothing at the moment that is the answer to the request."""
        return self.silent or any(clients.include(request) for clients in self.frozen)

    def is_partitioned(self, request: Request) -> bool:
        """Whether the connection is broken on which the request has come."""
        return any(clients.include(request) for clients in self.partitioned)

    def compact(self) -> None:
        """Forget the history: whoever goes on from an older version gets the error 410."""
        self._control.compact()

    def expire_token(self) -> None:
        """Refuse the current token from now on (401). There is a new one in the kubeconfig."""
        self._control.expire_token()

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop the server and start it again soon, at the same address, with the same data or with none.

        To wait until it is done, use the method of the cluster of the same name.
        """
        self._control.restart(keep_data)

    def move_clock(self, seconds: float) -> None:
        """Move the clock of the server, forward or backward if negative: it is seen in the timestamps of objects.

        Timers and timeouts are not affected. Several moves add up; `clear` does not move it back.

        Raises `ValueError` if the clock would be off by more than a century.
        """
        offset = self.clock.offset + seconds
        if not abs(offset) < _MAX_CLOCK_OFFSET:
            raise ValueError(f"the clock cannot be moved by {offset} seconds: it is more than a century")
        self.clock.offset = offset

    @property
    def is_active(self) -> bool:
        """Whether anything can happen to requests at all."""
        return bool(self.rules or self.advisers)

    def decide(self, call: Call, request: Request, path: str) -> FaultRule | None:
        """Choose what happens to a request, if anything."""
        for adviser in self.advisers:
            if (advice := adviser(call, request)) is not None:
                return advice
        for rule in self.rules:
            if not rule.matches(call, request, path):
                continue
            if rule.rate < 1 and self._random.random() >= rule.rate:
                continue
            with self._lock:
                used = self._used.get(id(rule), 0)
                if rule.times is not None and used >= rule.times:
                    continue
                self._used[id(rule)] = used + 1
            return rule
        return None
