"""
Faults in a simulation, one line each: it hits the operator only, unless it is told whom to hit.

Everything random comes from the seed of the simulation. What is limited in time, is limited in the virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypedDict, Unpack

from kopf._testing.simulated_operator import SimulatedOperator
from kopf._testing.simulation_core import check_options
from kopf._testing.watch_events import WatchEvents
from kopf_cluster import FaultRule


class Which(TypedDict, total=False):
    """Which of the requests are hit."""

    times: int | None
    """How many of them; all by default."""
    rate: float
    """The share of them, from 0 to 1; by the seed."""
    user: str
    """Whose they are: those of the operator by default; ``"*"`` is for everybody's, but the test's own."""


class SimulatedFaults:
    """
    Makes trouble. Each method begins one kind of it, and `clear` ends all of it.

    Requests are chosen by ``verb`` (``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, or a
    method of HTTP in capitals; all by default), by ``resource`` (``pods``, ``pods/status``, ``deployments.apps``; all
    by default), and by `Which`.

    Large because there are so many kinds of trouble.
    """

    def __init__(self, simulation: SimulatedOperator) -> None:
        self._simulation = simulation
        self._faults = simulation.cluster.faults
        self._timers: set[asyncio.TimerHandle] = set()
        self.events = WatchEvents(simulation)
        """What the operator is told by its watches."""

    def fail(
        self, verb: str = "", resource: str = "", *, status: int = 500, message: str = "", **which: Unpack[Which]
    ) -> FaultRule:
        """Refuse requests: nothing is done."""
        note = f"requests fail ({status})"
        return self._inject(note, verb, resource, which, status=status, message=message)

    def lose(self, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Do what is requested, and break the connection before the answer."""
        return self._inject("answers are lost", verb, resource, which, action="lose-answer")

    def disconnect(self, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Break the connection before anything is done."""
        return self._inject("connections are broken", verb, resource, which, action="disconnect")

    def latency(self, seconds: float, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Be slow: requests are done so many seconds later."""
        return self._inject(f"requests take {seconds:g}s", verb, resource, which, action="delay", latency=seconds)

    def forbid(self, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Take away a permission: 403."""
        return self.fail(verb, resource, status=403, **which)

    def conflict(self, resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Answer 409 to the writes that are meant for a specific version of the object, as if it has just changed."""
        return self._inject("conflicts", "", resource, {"times": 1, **which}, status=409, guarded=True)

    def drop_watch(self, *, every: float | None = None, clean: bool = False) -> None:
        """Break all watches now, or periodically, in seconds; ``clean`` is for ending them properly."""
        self._simulation.journal.note("watches are dropped")
        if every is not None:
            self._faults.drop_watches_every(every)
        else:
            self._faults.cut_watches(clean=clean)

    def stale_view(self, for_: float | None = None) -> None:
        """Let watches tell of nothing new for so many seconds, while reads and writes go on; then tell of it all."""
        _check_duration(0 if for_ is None else for_)
        self._simulation.journal.note("the view of watches is stale")
        self._faults.silence_watches()
        self._end_later(for_, lambda: self._faults.silence_watches(False))

    def lag(self, seconds: float, up_to: float | None = None) -> None:
        """Let watches tell of everything late; each watch on its own if it is random, up to so many seconds."""
        self._simulation.journal.note(f"watches lag by {seconds:g}s" + (f"-{up_to:g}s" if up_to is not None else ""))
        self._faults.lag_watches(seconds, up_to)

    def reorder(self, up_to: float = 1.0) -> None:
        """Let changes of different kinds be told of in another order than they were made: watches lag randomly."""
        self.lag(0, up_to)

    def duplicate_events(self, enabled: bool = True) -> None:
        """Let watches tell of everything twice."""
        self._simulation.journal.note("watch events come twice" if enabled else "watch events come once")
        self._faults.duplicate_events(enabled)

    def delay_event(self, n: int, seconds: float, resource: str = "") -> None:
        """
        Let the n-th event from now on come late, of all or of this resource; so does what follows in its stream.

        Counted are the events of the operator's watches, but not what it is given in lists, and not Kubernetes events.
        """
        _check_duration(seconds)

        async def tell(event: bytes, before: bytes) -> AsyncGenerator[bytes, None]:
            await self.events.wait(seconds)
            yield event

        self.events.plan(n, self._resolve(resource), f"an event is late by {seconds:g}s", tell)

    def duplicate_event(self, n: int, resource: str = "") -> None:
        """Let the n-th event from now on come twice; counted as for :meth:`delay_event`."""

        async def tell(event: bytes, before: bytes) -> AsyncGenerator[bytes, None]:
            yield event + event

        self.events.plan(n, self._resolve(resource), "an event comes twice", tell)

    def stale_event(self, n: int, seconds: float, resource: str = "") -> None:
        """
        Let the n-th event from now on be followed by the past; counted as for :meth:`delay_event`.

        It is as if the next server of the API lags behind: the event about the same object before that one comes again,
        and the n-th one once more, so many seconds later. If there was none about this object, it is just repeated.
        """
        _check_duration(seconds)

        async def tell(event: bytes, before: bytes) -> AsyncGenerator[bytes, None]:
            yield event + before
            await self.events.wait(seconds)
            yield event

        self.events.plan(n, self._resolve(resource), f"an event is followed by the past for {seconds:g}s", tell)

    def expire(self) -> None:
        """
        Forget the history, and break all watches: they cannot go on from where they were (410).

        As in the real API, those can whose last event is the latest change of all in the cluster, of whatever kind.
        """
        self._simulation.journal.note("the history expires")
        self._faults.compact()
        self._faults.cut_watches()

    def partition(self, for_: float | None = None) -> None:
        """Let nothing through between the operator and the cluster, with nobody told; for so many seconds."""
        _check_duration(0 if for_ is None else for_)
        self._simulation.journal.note("the network is partitioned")
        self._simulation.cut_network()
        self._end_later(for_, self._simulation.mend_network)

    def clock_jump(self, seconds: float) -> None:
        """Move the wall clock, forward or backward if negative; delays and timers are not affected."""
        self._simulation.journal.note(f"the wall clock jumps by {seconds:g}s")
        self._simulation.move_wall_clock(seconds)

    def restart_cluster(self, *, keep_data: bool = True) -> None:
        """Restart the API server soon, with the same data or with none."""
        self._simulation.journal.note("the cluster restarts")
        self._faults.restart(keep_data=keep_data)

    @property
    def remaining(self) -> float:
        """For how long there will be trouble that ends by itself, in seconds."""
        ends = [self.events.due, *(timer.when() for timer in self._timers if not timer.cancelled())]
        return max(0.0, max(ends) - asyncio.get_running_loop().time())

    def clear(self) -> None:
        """End all the trouble."""
        self._simulation.journal.note("the trouble is over")
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._simulation.mend_network()
        self.events.clear()
        self._faults.clear()

    def _inject(self, note: str, verb: str, resource: str, which: Which, **options: Any) -> FaultRule:
        check_options(which, Which)
        resource = self._resolve(resource)
        is_method, times = verb.isupper(), which.get("times")
        user = which.get("user") or self._simulation.user
        what = " ".join(filter(None, [verb, resource])) or "everything"
        self._simulation.journal.note(f"{note}: {what}" + (f", {times} times" if times is not None else ""))
        return self._faults.inject(
            **options,
            verb=verb if verb and not is_method else None,
            method=verb if is_method else None,
            resource=resource or None,
            times=times,
            rate=which.get("rate", 1.0),
            user=None if user == "*" else user,
        )

    def _resolve(self, resource: str) -> str:
        """Give the plural name of the resource, by whatever name it is called; unknown ones cannot be meant."""
        name, slash, subresource = resource.partition("/")
        if not name:
            return resource
        _, full, _ = self._simulation.cluster.resolve_kind(name)
        return resource if name in (full, full.partition(".")[0]) else f"{full}{slash}{subresource}"

    def _end_later(self, seconds: float | None, end: Callable[[], None]) -> None:
        if seconds is not None:
            self._timers.add(self._simulation.call_later(seconds, end))


def _check_duration(seconds: float) -> None:
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"The time goes forward only, by some seconds: not by {seconds}.")
