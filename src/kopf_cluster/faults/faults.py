"""
Faults on demand: wrong answers, lost answers, slowness, late events, broken and silent watches; seeded, so that they
can be replayed.

A rule selects requests, and tells how often they fail, and how. Other processes can use the administration endpoint.
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
"""A function that returns the rule to apply to a request, or none."""


class WatchDrops(msgspec.Struct, frozen=True):
    """The period of cuts of watches, in seconds, and their clients."""

    period: float
    clients: Clients = EVERYBODY

    def __post_init__(self) -> None:
        if self.period <= 0:
            raise ValueError(f"the period must be positive, not {self.period}")


class ServerControl(msgspec.Struct):
    """The calls of faults to a running server, from any thread."""

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
"""Does nothing, while no server runs."""


class Faults:
    """The faults of one cluster. All methods may be called from any thread.

    * ``seed``: the seed of the random decisions.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rules: tuple[FaultRule, ...] = ()
        """The rules in force; see `inject`."""
        self.watch_drops: WatchDrops | None = None
        """The period of cuts of watches, and their clients; none to never cut them."""
        self.silent = False
        """Whether watches stay open but send nothing; they send the events afterwards."""
        self.duplicating = False
        """Whether watches send each event twice."""
        self.paused = False
        """Whether the server accepts requests, but does not answer them until `resume`."""
        self.frozen: tuple[Clients, ...] = ()
        """The clients whose requests are not answered, and whose watches are silent."""
        self.partitioned: tuple[Clients, ...] = ()
        """The clients whose connections are broken."""
        self.watch_lag: WatchLag | None = None
        """The delay of the events of watches; none by default."""
        self.clock = Clock()
        """The clock of the delays."""
        self.advisers: list[Adviser] = []
        """Functions that decide about each request before the rules."""
        self.retellers: list[Reteller] = []
        """Functions that replace or delay events of watches; the first one with an answer decides."""
        self.reseed(seed)
        self._used: dict[int, int] = {}
        self._lock = threading.Lock()
        self._control = _NOWHERE

    def bind(self, control: ServerControl | None) -> None:
        """Let the faults act on this server; on none while the cluster does not run."""
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
        """Add a rule, and return it. For each request, the first matching rule with a positive random decision applies.

        The options are the same as in `FaultRule`, which raises `ValueError` for wrong ones.
        """
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
        """End this rule alone."""
        self.replace([other for other in self.rules if other is not rule])

    def clear(self) -> None:
        """End all faults, except for the moved clock."""
        self.replace([])
        self.watch_drops, self.watch_lag = None, None
        self.silent = self.paused = self.duplicating = False
        self.isolate((), ())

    def reseed(self, seed: int) -> None:
        """Restart the sequence of random decisions with this seed."""
        self._seed = seed
        self._random = random.Random(seed)
        self._streams: collections.Counter[str] = collections.Counter()

    def make_dice(self, resource: str) -> random.Random:
        """Return the random numbers of the next stream of the resource, which are independent of all other streams."""
        self._streams[resource] += 1
        return random.Random(f"{self._seed}/{resource}/{self._streams[resource]}")

    def drop_watches_every(
        self,
        seconds: float | None,
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> None:
        """Cut watches periodically.

        * ``seconds``: the period, in seconds; none to end the cuts.
        * ``user``: the name of the user whose watches are cut; all users by default.
        * ``agent``: a regular expression for the header ``User-Agent`` of the clients; all clients by default.

        Raises `ValueError` if the period is not positive, or if the agent is not a regular expression.
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
        """Delay the events of current and new watches; each stream has its own delays, and keeps its order.

        * ``seconds``: the delay, in seconds, or the minimal one if there is ``up_to``; none to end the delays, and to
          send the delayed events.
        * ``up_to``: the maximal delay, in seconds. Each piece of a stream gets a random delay.
        * ``user``: the name of the user whose watches are late; all users by default.
        * ``agent``: a regular expression for the header ``User-Agent`` of the clients; all clients by default.

        Raises `ValueError` if a delay is negative or infinite, or if the maximal one is below the minimal one.
        """
        if seconds is None and up_to is not None:
            raise ValueError("the longest lag needs a shortest one, e.g. 0")
        self.watch_lag = (
            None if seconds is None else WatchLag(seconds, seconds if up_to is None else up_to, Clients(user, agent))
        )
        self._control.changed()

    def find_lag(self, request: Request) -> WatchLag | None:
        """Return the delay of the stream that answers the request, or none."""
        lag = self.watch_lag
        return lag if lag is not None and lag.clients.include(request) else None

    def cut_watches(self, *, clean: bool = False, user: str | None = None, agent: str | None = None) -> None:
        """End the current watches now.

        * ``clean``: whether the streams end properly; otherwise, their connections break.
        * ``user``: the name of the user whose watches end; all users by default.
        * ``agent``: a regular expression for the header ``User-Agent`` of the clients; all clients by default.
        """
        self._control.cut(clean, Clients(user, agent))

    def silence_watches(self, silent: bool = True) -> None:
        """Keep all current and new watches open, but silent; or end that, and send what they have missed."""
        self.silent = silent
        self._control.changed()

    def duplicate_events(self, enabled: bool = True) -> None:
        """Send each event of all watches twice, or end that."""
        self.duplicating = enabled

    def pause(self) -> None:
        """Hold all requests without an answer until `resume`."""
        self.paused = True
        self._control.changed()

    def resume(self) -> None:
        """Answer the requests that `pause` holds, and all new ones."""
        self.paused = False
        self._control.changed()

    def freeze(self, *, user: str | None = None, agent: str | None = None) -> None:
        """Accept requests of some clients without an answer, and silence their watches, until `heal`.

        Then the server handles the requests whose clients still wait, and the watches send what they have missed.

        * ``user``: the name of the user; all users by default.
        * ``agent``: a regular expression for the header ``User-Agent`` of the clients; all clients by default.
        """
        self.isolate([*self.frozen, Clients(user, agent)], self.partitioned)

    def partition(self, *, user: str | None = None, agent: str | None = None) -> None:
        """Break current and new connections of some clients, and do nothing for them, until `heal`.

        * ``user``: the name of the user; all users by default.
        * ``agent``: a regular expression for the header ``User-Agent`` of the clients; all clients by default.
        """
        self.isolate(self.frozen, [*self.partitioned, Clients(user, agent)])

    def heal(self, *, user: str | None = None, agent: str | None = None) -> None:
        """End `freeze` and `partition` with the same options, or all of them if there are no options."""
        healed = Clients(user, agent)
        frozen, partitioned = (
            [clients for clients in isolated if healed not in (clients, EVERYBODY)]
            for isolated in (self.frozen, self.partitioned)
        )
        self.isolate(frozen, partitioned)

    def isolate(self, frozen: Iterable[Clients], partitioned: Iterable[Clients]) -> None:
        """Set all frozen and all partitioned clients at once."""
        self.frozen, self.partitioned = tuple(frozen), tuple(partitioned)
        for clients in self.partitioned:
            self._control.cut(False, clients)
        self._control.changed()

    def is_held(self, request: Request) -> bool:
        """Whether the request has to wait."""
        return self.paused or any(clients.include(request) for clients in self.frozen)

    def is_silent_for(self, request: Request) -> bool:
        """Whether the stream that answers the request is silent at the moment."""
        return self.silent or any(clients.include(request) for clients in self.frozen)

    def is_partitioned(self, request: Request) -> bool:
        """Whether the connection of the request is broken."""
        return any(clients.include(request) for clients in self.partitioned)

    def compact(self) -> None:
        """Clear the history: watches from older versions get the error 410."""
        self._control.compact()

    def expire_token(self) -> None:
        """Refuse the current token from now on (401); there is a new one in the kubeconfig."""
        self._control.expire_token()

    def restart(self, *, keep_data: bool = True) -> None:
        """Restart the server soon, at the same address; the method `restart` of the cluster waits until it is done.

        * ``keep_data``: whether to keep the data; otherwise, it is a new and empty cluster.
        """
        self._control.restart(keep_data)

    def move_clock(self, seconds: float) -> None:
        """Move the clock of the server, which affects only timestamps, but no timers and timeouts.

        * ``seconds``: the time to move the clock by, in seconds; backwards if negative. Several moves add up.

        Raises `ValueError` if the clock would be off by more than a century.
        """
        offset = self.clock.offset + seconds
        if not abs(offset) < _MAX_CLOCK_OFFSET:
            raise ValueError(f"the clock cannot be moved by {offset} seconds: it is more than a century")
        self.clock.offset = offset

    @property
    def is_active(self) -> bool:
        """Whether there are any rules or advisers."""
        return bool(self.rules or self.advisers)

    def decide(self, call: Call, request: Request, path: str) -> FaultRule | None:
        """Return the rule to apply to a request, or none."""
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
