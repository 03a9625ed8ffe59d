"""
Faults in a simulation, one line each. By default, they hit only the operator.

Everything random comes from the seed of the simulation. All durations are in the virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypedDict, Unpack

from kopf._testing.calling_options import check_names
from kopf._testing.simulated_operator import SimulatedOperator
from kopf._testing.watch_events import WatchEvents
from kopf_cluster import FaultRule


class Which(TypedDict, total=False):
    """The requests to hit."""

    times: int | None
    """The number of requests; all by default."""
    rate: float
    """The share of requests, from 0 to 1, chosen by the seed; 1 by default."""
    user: str
    """The user of the requests; the operator by default. ``"*"`` is for all users except the test."""


class SimulatedFaults:
    """
    Makes trouble. Each method begins one kind of trouble, and `clear` ends all trouble.

    Select the requests by ``verb`` (``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, or a
    method of HTTP in capitals; all by default), by ``resource`` (``pods``, ``pods/status``, ``deployments.apps``; all
    by default), and by `Which`.

    Large because there are so many kinds of trouble.
    """

    def __init__(self, simulation: SimulatedOperator) -> None:
        self._simulation = simulation
        self._faults = simulation.cluster.faults
        self._timers: set[asyncio.TimerHandle] = set()
        self.events = WatchEvents(simulation)
        """The watch events of the operator."""

    def fail(
        self, verb: str = "", resource: str = "", *, status: int = 500, message: str = "", **which: Unpack[Which]
    ) -> FaultRule:
        """Refuse requests, and do nothing."""
        note = f"requests fail ({status})"
        return self._inject(note, verb, resource, which, status=status, message=message)

    def lose(self, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Do the requested work, and break the connection before the answer."""
        return self._inject("answers are lost", verb, resource, which, action="lose-answer")

    def disconnect(self, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Break the connection before anything is done."""
        return self._inject("connections are broken", verb, resource, which, action="disconnect")

    def latency(self, seconds: float, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Delay requests by this number of seconds."""
        return self._inject(f"requests take {seconds:g}s", verb, resource, which, action="delay", latency=seconds)

    def forbid(self, verb: str = "", resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Take away a permission: 403."""
        return self.fail(verb, resource, status=403, **which)

    def conflict(self, resource: str = "", **which: Unpack[Which]) -> FaultRule:
        """Answer 409 to writes for a specific version of the object, as if the object had just changed."""
        return self._inject("conflicts", "", resource, {"times": 1, **which}, status=409, guarded=True)

    def drop_watch(self, *, every: float | None = None, clean: bool = False) -> None:
        """Break all watches now, or ``every`` so many seconds; with ``clean``, end them properly."""
        self._simulation.journal.note("watches are dropped")
        if every is not None:
            self._faults.drop_watches_every(every)
        else:
            self._faults.cut_watches(clean=clean)

    def stale_view(self, for_: float | None = None) -> None:
        """Hold all watch events back for ``for_`` seconds, while reads and writes continue; then send them."""
        _check_duration(0 if for_ is None else for_)
        self._simulation.journal.note("the view of watches is stale")
        self._faults.silence_watches()
        self._end_later(for_, lambda: self._faults.silence_watches(False))

    def lag(self, seconds: float, up_to: float | None = None) -> None:
        """Delay all watch events by ``seconds``, or randomly ``up_to`` a maximum, each watch on its own."""
        self._simulation.journal.note(f"watches lag by {seconds:g}s" + (f"-{up_to:g}s" if up_to is not None else ""))
        self._faults.lag_watches(seconds, up_to)

    def reorder(self, up_to: float = 1.0) -> None:
        """Delay watches randomly, so that events of different kinds come in another order than the changes."""
        self.lag(0, up_to)

    def duplicate_events(self, enabled: bool = True) -> None:
        """Send all watch events twice."""
        self._simulation.journal.note("watch events come twice" if enabled else "watch events come once")
        self._faults.duplicate_events(enabled)

    def delay_event(self, n: int, seconds: float, resource: str = "") -> None:
        """
        Delay the n-th event from now on, of any or of this resource, with all following events of its stream.

        Only the events of the operator's watches count, not the objects in lists, and not Kubernetes events.
        """
        _check_duration(seconds)

        async def tell(event: bytes, before: bytes) -> AsyncGenerator[bytes, None]:
            await self.events.wait(seconds)
            yield event

        self.events.plan(n, self._resolve(resource), f"an event is late by {seconds:g}s", tell)

    def duplicate_event(self, n: int, resource: str = "") -> None:
        """Send the n-th event from now on twice; events count as for :meth:`delay_event`."""

        async def tell(event: bytes, before: bytes) -> AsyncGenerator[bytes, None]:
            yield event + event

        self.events.plan(n, self._resolve(resource), "an event comes twice", tell)

    def stale_event(self, n: int, seconds: float, resource: str = "") -> None:
        """
        Send an older event after the n-th event from now on; events count as for :meth:`delay_event`.

        It is as if another API server lags behind: the previous event about the same object comes again, and then the
        n-th one once more, after this number of seconds. If there was no previous event, the n-th one is repeated.
        """
        _check_duration(seconds)

        async def tell(event: bytes, before: bytes) -> AsyncGenerator[bytes, None]:
            yield event + before
            await self.events.wait(seconds)
            yield event

        self.events.plan(n, self._resolve(resource), f"an event is followed by the past for {seconds:g}s", tell)

    def expire(self) -> None:
        """
        Forget the history, and break all watches: they cannot continue from their last versions (410).

        As in the real API, a watch can continue if its last event is the latest change in the cluster, of any kind.
        """
        self._simulation.journal.note("the history expires")
        self._faults.compact()
        self._faults.cut_watches()

    def partition(self, for_: float | None = None) -> None:
        """Silently drop everything between the operator and the cluster, for ``for_`` seconds or until `clear`."""
        _check_duration(0 if for_ is None else for_)
        self._simulation.journal.note("the network is partitioned")
        self._simulation.cut_network()
        self._end_later(for_, self._simulation.mend_network)

    def clock_jump(self, seconds: float) -> None:
        """Move the wall clock forward, or backward if negative; delays and timers are not affected."""
        self._simulation.journal.note(f"the wall clock jumps by {seconds:g}s")
        self._simulation.move_wall_clock(seconds)

    def restart_cluster(self, *, keep_data: bool = True) -> None:
        """Restart the API server soon, with or without its data."""
        self._simulation.journal.note("the cluster restarts")
        self._faults.restart(keep_data=keep_data)

    @property
    def remaining(self) -> float:
        """The time until all temporary trouble has ended, in seconds."""
        ends = [self.events.due, *(timer.when() for timer in self._timers if not timer.cancelled())]
        return max(0.0, max(ends) - asyncio.get_running_loop().time())

    def clear(self) -> None:
        """End all trouble."""
        self._simulation.journal.note("the trouble is over")
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._simulation.mend_network()
        self.events.clear()
        self._faults.clear()

    def _inject(self, note: str, verb: str, resource: str, which: Which, **options: Any) -> FaultRule:
        check_names(which, Which)
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
        """Return the plural name of the resource by any of its names."""
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
        raise ValueError(f"The duration must be a number of seconds, not negative, got {seconds}.")
