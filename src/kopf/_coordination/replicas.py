"""
Replicas: the operator as one of several that share the objects, or take turns.

This is the I/O; the state machine of :mod:`kopf._coordination.replica_protocol` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APINotFoundError
from kopf._client.fencing import Fence
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.informer import Informer
from kopf._controller.runtime import Runtime
from kopf._coordination.lease_client import LeaseClient
from kopf._coordination.lease_renewal import Step
from kopf._coordination.leases import LEADER, Lease, Terms, name_holder
from kopf._coordination.replica_identity import get_replica_name
from kopf._coordination.replica_protocol import Replica
from kopf._coordination.role_change_log import RoleChangeLog
from kopf._handlers.time_source import time_source
from kopf._values.permissions import format_advice
from kopf._values.replica_state import ReplicaState
from kopf._values.resources import LEASES
from kopf._values.slots import ALL_SLOTS, Slots

logger = logging.getLogger(__name__)

_VERBS = ("get", "list", "watch", "create", "patch")

_LEAVING_TIMEOUT = 5.0
"""How long the release of the Leases may delay the exit after everything is handed over, in seconds."""

_LEFTOVERS_INTERVAL = 1.0
"""How often to check if handlers in threads, which cannot be stopped, have ended, in seconds."""

_ERRORS = (APIError, APINetworkError, LoginError, TimeoutError, ValueError, LookupError, TypeError)
"""The errors of requests and of malformed answers."""


class SlotHolder(Protocol):
    """The part of the operator that handles the objects."""

    def take_over(self, slots: Slots) -> None:
        """Handle the objects of these slots, as after a restart of the operator."""

    async def hand_over(self, slots: Slots, timeout: float) -> Slots:
        """Stop handling the objects of these slots in so many seconds; return the slots that are still in use."""

    async def give_up(self) -> None:
        """Stop everything at once, and forget everything."""


class Replicas:
    """
    This operator among its replicas.

    ``handlers`` is a fingerprint of the handlers, which tells replicas of different operators apart; ``version`` is
    that of the operator, for humans. The settings must be complete, with the mode and the namespace.

    Large because it connects everything: the server, the handling of objects, the fence, the log, the observers.
    """

    def __init__(
        self, runtime: Runtime, holder: SlotHolder, fence: Fence, *, handlers: str = "", version: str = ""
    ) -> None:
        self._runtime = runtime
        self._holder = holder
        self._fence = fence
        self._settings = settings = runtime.settings.coordination
        identity = get_replica_name(settings)
        self._terms = terms = Terms(
            mode=settings.mode or "",
            name=settings.name,
            identity=identity,
            lease_duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
            version=version,
            handlers=handlers,
        )
        self._replica = Replica(terms, lambda: f"{identity}_{secrets.token_hex(4)}")
        self._client = LeaseClient(runtime.api, terms, settings.namespace or "default", time_source.get().now)
        self._log = RoleChangeLog(terms, f"{settings.namespace}/{settings.name}")
        self._opened_by = ""
        """The life of the replica that has opened the fence."""
        self._is_fenced = False
        self._is_too_late = False
        """Whether the operator exits before everything is handed over."""
        self._state: ReplicaState | None = None
        self.joined = asyncio.Event()
        """Set when it lives among the others, until it parts."""
        self.parted = asyncio.Event()
        """Set when it has lost its permissions for Leases, and everything is stopped, until it has joined again."""
        self._denied: set[object] = set()
        """The requests that are not permitted: the verbs of the watch, and the functions that accept other answers."""
        self._informer = Informer(runtime, self._client.target, explain=self._explain)
        self._watching: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._wakeup = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks to cancel when the replica gives up: requests and hand-overs."""

    # ------------------------------------------------------------------ for the operator

    async def run(self) -> None:
        """Take part in the group forever, also while leaving."""
        async with asyncio.TaskGroup() as self._group:
            self._watch()
            self._group.create_task(self._live(), name="replica")

    async def leave(self) -> None:
        """
        Hand everything over, and release the Leases, so that others can go on at once. :meth:`run` must be running.

        If a handler still runs in a thread, or the server does not answer, nothing is released, with a warning in the
        log: the others go on when the Lease expires.
        """
        self._replica.is_leaving = True
        self._wakeup.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout + _LEAVING_TIMEOUT):
                while not self._replica.is_out:
                    self._changed.clear()
                    await self._changed.wait()
        if self._replica.is_out:
            self._fence.shut()
        else:
            self._is_too_late = True
            self._log.log_unreleased(self._replica.draining)

    def get_token(self, slot: int) -> int:
        """Return the fencing token of the slot, which grows with each owner; 0 if the slot is not ours."""
        assignment = self._replica.assignment
        return 0 if assignment is None else assignment.get_token(slot, self._replica.name)

    # ------------------------------------------------------------------ the loop

    async def _live(self) -> None:
        while True:
            self._wakeup.clear()
            wake_at = self._step()
            delay = max(0.0, wake_at - self._fence.now())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()
            lateness = self._fence.now() - wake_at
            if lateness >= self._terms.retry_period:  # less happens on busy machines
                logger.warning("The process was frozen for %.1f s.", lateness)

    def _step(self) -> float:
        """Make one step of the protocol; return the time of the next one, by the clock of the fence."""
        step = self._replica.step(self._fence.now())
        if step.gave_up:
            self._give_up(step.gave_up)
        else:
            self._keep_open()
            self._perform(step)
        self._tell_state()
        self._changed.set()
        return step.wake_at

    def _perform(self, step: Step) -> None:
        if step.taken:
            self._holder.take_over(step.taken)
            gaps = self._replica.observed.gaps.end(step.taken, self._fence.now())
            self._runtime.observer.slots_taken(gaps)
        if step.left:
            self._log.log_moves(step.left, self._replica)
            self._start(self._hand_over(step.left))
        for lease in step.writes:
            write = functools.partial(self._client.write, lease)
            self._start(self._talk(lease.name, write, self._replica.accept_write))
        for name in step.reads:
            self._start(self._talk(name, functools.partial(self._client.read, name), self._replica.accept_read))
        if step.is_listing:
            self._start(self._talk("", self._client.list, self._accept_listed))

    def _keep_open(self) -> None:
        """Extend the fence to the deadline of the replica; each life of the replica opens it once."""
        replica = self._replica
        if not replica.is_alive:
            return
        if self._opened_by != replica.name:
            self._opened_by, self._is_fenced = replica.name, False
            self._fence.open(replica.renewal.deadline)
        elif not self._fence.extend(replica.renewal.deadline):
            replica.renewal.deadline = 0.0
            self._wakeup.set()

    def _give_up(self, reason: str) -> None:
        self._fence.shut()
        self._is_fenced = True
        for task in self._tasks:
            task.cancel()
        self._log.log_fenced(reason)
        self._start(self._stop())

    async def _stop(self) -> None:
        await self._holder.give_up()
        self._replica.accept_stop()
        self._wakeup.set()

    async def _hand_over(self, slots: Slots) -> None:
        timeout = self._settings.drain_timeout
        while slots:
            left = slots - await self._holder.hand_over(slots, timeout)
            if self._is_too_late:
                return  # everything is being stopped by now, so it is unknown what still runs in threads
            self._replica.accept_end(left)
            self._wakeup.set()
            slots -= left
            if slots:
                self._log.log_stuck(slots)
                await asyncio.sleep(_LEFTOVERS_INTERVAL)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------ the server

    def _watch(self) -> None:
        """Watch the Leases; anew if the server is back, because a broken watch can wait for longer than Leases live."""
        assert self._group is not None
        if self._watching is not None:
            self._watching.cancel()
        watching = self._informer.run(self._take_events)
        self._watching = self._group.create_task(watching, name="watcher of the Leases")

    async def _take_events(self, events: Collection[WatchEvent]) -> None:
        now = self._fence.now()
        self._denied -= {"list", "watch"}
        if self._terms.mode == LEADER:
            self._is_fenced = False  # a standby makes no requests by which it could notice that the server answers
        for event in events:
            if event is LISTED:
                continue
            head = event.object.head
            if event.type == "DELETED":
                self._replica.observed.observe_absence(head.name, head.resourceVersion, now)
            else:
                lease = Lease.parse(event.object)
                self._log.check_handlers(lease)
                self._replica.observe(lease, now)
        self._wakeup.set()

    async def _talk(
        self, name: str, request: Callable[[], Awaitable[Any]], accept: Callable[[str, Any, float], None]
    ) -> None:
        """Make the request, and report its result to the replica."""
        started = self._fence.now()
        try:
            answer = await request()
        except _ERRORS as e:
            self._explain_failure(e, accept)
            self._replica.accept_failure(name, started)
        else:
            if self._log.note_recovery() or accept in self._denied:
                self._watch()
            self._denied.discard(accept)
            self._is_fenced = False
            accept(name, answer, self._fence.now())
        self._wakeup.set()

    def _accept_listed(self, _: str, leases: list[Lease], now: float) -> None:
        for lease in leases:
            self._log.check_handlers(lease)
        self._replica.accept_listing(leases, now)

    def _explain_failure(self, error: Exception, accept: object) -> None:
        namespace = self._client.target.scope
        if isinstance(error, APIForbiddenError):
            self._explain("access", error, accept)
        elif isinstance(error, APINotFoundError):
            self._log.log_failure(f"there is no namespace {namespace!r} for the leases: {error}")
        else:
            self._log.log_failure(str(error) or "no response in time")

    def _explain(self, verb: str, error: APIForbiddenError, denied: object = None) -> None:
        if not self._denied:
            advice = format_advice(LEASES, _VERBS, namespace=self._client.target.scope)
            text = "Not permitted to %s leases, so the operator cannot %s its replicas, and handles nothing: %s. %s"
            logger.error(text, verb, "join" if self._state is None else "stay among", error, advice)
        self._denied.add(denied or verb)

    # ------------------------------------------------------------------ the state for observers

    def _tell_state(self) -> None:
        replica, terms = self._replica, self._terms
        has_joined = replica.has_joined(self._fence.now())
        is_barred = bool(self._denied) and not has_joined
        places = {} if replica.assignment is None else replica.assignment.places
        state = ReplicaState(
            mode=terms.mode,
            name=terms.name,
            identity=terms.identity,
            is_leading=replica.is_coordinator,
            is_fenced=self._is_fenced or is_barred,
            held=replica.acting,
            wanted=frozenset(slot for slot, place in places.items() if place.target == replica.name),
            draining=replica.draining,
            others=_list_others(replica),
        )
        if self._state is None and not has_joined:
            return
        if is_barred and not replica.is_giving_up:
            self.joined.clear()
            self.parted.set()
        elif has_joined:
            self.joined.set()
            if self.parted.is_set():
                self.parted.clear()
                self._denied.clear()
        if state != self._state:
            self._state = state
            self._runtime.observer.share_changed(state)
        self._log.log_role(state, replica)


def _list_others(replica: Replica) -> Mapping[str, Slots]:
    """Return the slots of the other replicas by their identities; without the replicas that have lost their Leases."""
    head = replica.observed.head
    if replica.terms.mode == LEADER:
        holder = "" if head is None else head.lease.holder
        return {name_holder(holder): ALL_SLOTS} if holder not in ("", replica.name) else {}
    places = {} if replica.assignment is None else replica.assignment.places
    return {
        name_holder(holder): frozenset(slot for slot, place in places.items() if place.owner == holder)
        for holder in replica.observed.replicas
        if holder != replica.name
    }
