"""
Membership: the operator's part in one peering object, i.e. its own record, and what it makes of the others' ones.

A member announces itself before it looks at the others, so of two operators that start at once, at least one notices
the other. It renews its record until the operator has finished its work, and only then withdraws it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APINotFoundError
from kopf._client.http.api import APIClient
from kopf._client.resources.watch_machine import LISTED, State, WatchEvent, WatchMachine
from kopf._client.resources.watching import watch_batches
from kopf._controller.denials import BACKOFF, Denials
from kopf._controller.own_writes import is_newer
from kopf._controller.streams import Scope
from kopf._controller.supervision import keep_running
from kopf._coordination.peers import Peer, Peers, Standing, show_peers
from kopf._health.liveness import Senior
from kopf._values.codec import NestingError
from kopf._values.objects import KubeObject
from kopf._values.permissions import format_advice
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._coordination.peering import Peering

logger = logging.getLogger(__name__)

_RETRYING_INTERVAL = 10.0
"""How soon to renew the record if that has failed, in seconds."""

_LEAVING_TIMEOUT = 5.0
"""How long the withdrawal of our record may hold the exit, in seconds; others will see that we are dead anyway."""

_BACKOFFS = (1, 2)
"""Delays between the attempts of one keep-alive: the next one comes soon anyway."""

_KEEP_ALIVE_TIMEOUT = 5.0
"""How long one attempt may take, in seconds: it must not hang until others consider us dead."""

_SOONEST = 1.0
"""The shortest pause between keep-alives out of turn, in seconds."""

_MAX_PROBLEMS = 10
"""How many unreadable records are reported at once."""

_MAX_SHOWN = 10
"""How many of those in whose favour the operator is paused are shown in the health."""


async def patch_records(
    api: APIClient,
    resource: Resource,
    namespace: Scope,
    name: str,
    records: Mapping[str, Mapping[str, Any] | None],
) -> KubeObject:
    """
    Put the records into the peering object; remove those that are ``None``.

    Raises :class:`APIError`, :class:`APINetworkError`, :class:`LoginError`, rather soon.
    """
    subresource = "status" if "status" in resource.subresources else None
    path = resource.get_url(namespace=namespace, name=name, subresource=subresource)
    payload = {"status": records}
    return KubeObject.from_json(
        await api.patch(path, payload=payload, timeout=_KEEP_ALIVE_TIMEOUT, backoffs=_BACKOFFS)
    )


def _get_status(obj: KubeObject) -> object:
    """Get the records as far as they can be decoded: what is too deep, cannot be of importance."""
    try:
        return obj.get("status")
    except NestingError:
        return obj.prune().get("status")


class Membership:
    """The operator in one peering object."""

    def __init__(self, peering: Peering, scope: Scope) -> None:
        self._peering = peering
        self._scope = scope
        self._peers = Peers(peering.identity)
        self._resource: Resource | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_present: bool | None = None
        self._is_announced = False
        self._is_failing = False
        self._is_tried = False
        self._tried_at = 0.0
        self._version = ""
        self._denied: set[str] = set()
        self._standing = Standing()
        self._death: asyncio.TimerHandle | None = None
        self._hurry = asyncio.Event()
        self.is_pausing = False
        """Whether it was said that the operator is paused because of this."""
        self.decided = asyncio.Event()
        """Whether it is known if the operator can work there."""

    @property
    def place(self) -> str:
        """Where it is, for humans."""
        where = "cluster-wide" if self._scope is None else f"in {self._scope!r}"
        return f"{self._peering.settings.name!r} {where}"

    def start(self, group: asyncio.TaskGroup, resource: Resource | None) -> None:
        """Begin with the kind of peering that is found, or knowing that there is none."""
        self._resource = resource
        if resource is None:
            self._accept(None)
            return
        name = f"peering {self.place}"
        self._task = group.create_task(
            keep_running(
                name, lambda: self._participate(resource), fatal=(LoginError,), liveness=self._peering.runtime.liveness
            ),
            name=name,
        )

    def interrupt(self) -> None:
        """Stop for now: the operator remains as it is."""
        if self._task is not None:
            self._task.cancel()
        if self._death is not None:
            self._death.cancel()

    def stop(self) -> None:
        """Take no part anymore; the operator is not held because of this."""
        self.interrupt()
        self._peering.release(self)
        self._note_seniors([])
        self.decided.set()

    async def _participate(self, resource: Resource) -> None:
        await self._keep_alive(resource)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_alive_regularly(resource))
                await self._watch(resource)
        except ExceptionGroup as e:
            raise e.exceptions[0] from e  # any of them is as good as all of them

    # ------------------------------------------------------------------ telling of ourselves

    async def _keep_alive_regularly(self, resource: Resource) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._get_interval())
                await asyncio.sleep(self._tried_at + _SOONEST - asyncio.get_running_loop().time())
            self._hurry.clear()
            await self._keep_alive(resource)

    def _get_interval(self) -> float | None:
        """How long until the next keep-alive: safely before we seem dead, and not at the same time as the others."""
        if "patch" in self._denied:
            return BACKOFF
        if self._is_failing:
            return _RETRYING_INTERVAL
        if self._is_present is False and not self._denied:
            return None  # when it appears, it will be seen
        lifetime = float(self._peering.settings.lifetime)
        return max(_SOONEST / 2, lifetime / 2, lifetime - random.uniform(5, 10))

    async def _keep_alive(self, resource: Resource) -> None:
        """Renew our record, remove those of the dead, and look at the others on that occasion."""
        settings = self._peering.settings
        loop = asyncio.get_running_loop()
        records: dict[str, Mapping[str, Any] | None] = dict.fromkeys(self._peers.get_remains(time=loop.time()))
        records[self._peering.identity] = self._describe_us().make_record()
        self._is_tried = True
        self._tried_at = loop.time()
        try:
            obj = await patch_records(self._peering.runtime.api, resource, self._scope, settings.name, records)
        except APINotFoundError:
            self._log_keep_alive("not found")
            self._is_announced = self._is_tried = False
            self._accept(None)
        except APIForbiddenError as e:
            self._is_announced = self._is_tried = False
            self._deny("patch", e)
        except (APIError, APINetworkError) as e:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "Keep-alive in %s has failed, other attempts will be made: %s", self.place, e)
            self._is_failing = True
            return
        else:
            self._log_keep_alive("ok")
            self._is_announced = True
            self._permit("patch")
            self._accept(obj)
            self._check_schema(resource)
        self._is_failing = False

    def _check_schema(self, resource: Resource) -> None:
        """Warn if nobody can see our record because the API silently drops it."""
        if not self._peers.has_us and self._peering.runtime.warnings.is_new((resource, "dropped")):
            logger.warning(
                "The records of the peering %s are dropped by the API, as the schema of %r does not know them, so the "
                "operators do not see each other. Add 'x-kubernetes-preserve-unknown-fields: true' to its status.",
                self.place, resource,
            )

    def _describe_us(self) -> Peer:
        settings = self._peering.settings
        return Peer(self._peering.identity, settings.priority, settings.lifetime, self._peering.runtime.clock.now())

    def _log_keep_alive(self, outcome: str) -> None:
        if not self._peering.settings.stealth:
            logger.debug("Keep-alive in %s: %s.", self.place, outcome)

    async def leave(self) -> None:
        """Withdraw our record."""
        self.interrupt()
        if self._resource is None or not self._is_tried:
            return
        settings = self._peering.settings
        try:
            async with asyncio.timeout(_LEAVING_TIMEOUT):
                records = {self._peering.identity: None}
                await patch_records(self._peering.runtime.api, self._resource, self._scope, settings.name, records)
        except APINotFoundError:
            pass
        except (APIError, APINetworkError, LoginError, TimeoutError) as e:
            logger.warning(
                "Could not withdraw from the peering %s, others will go on in %s seconds: %s",
                self.place, settings.lifetime, str(e) or "no response in time",
            )

    # ------------------------------------------------------------------ looking at the others

    async def _watch(self, resource: Resource) -> None:
        """Watch only the one object: so it is also possible with permissions for this one object."""
        runtime = self._peering.runtime
        selectors = {resource.name: f"metadata.name={runtime.settings.peering.name}"}
        watching = dataclasses.replace(runtime.settings.watching, field_selectors=selectors, label_selectors={})
        settings = dataclasses.replace(runtime.settings, watching=watching)
        machine = WatchMachine(resource)
        denials = Denials(machine)
        while True:
            try:
                with runtime.liveness.watching(f"{resource!r} {self.place}") as heartbeat:
                    batches = watch_batches(
                        runtime.api, settings, resource, self._scope, machine=machine, on_activity=heartbeat.beat
                    )
                    async with contextlib.aclosing(batches):
                        async for events in batches:
                            denials.permit(events)
                            is_listing = machine.state is not State.WATCHING or LISTED in events
                            self._take(events, is_listing=is_listing)
            except APIForbiddenError as e:
                if (verb := denials.deny()) is not None:
                    self._deny(verb, e)
                await asyncio.sleep(BACKOFF)
            except APINotFoundError:
                self._accept(None)
                self._peering.rescan()
                await asyncio.sleep(BACKOFF)

    def _take(self, events: Collection[WatchEvent], *, is_listing: bool) -> None:
        for event in events:
            if event is LISTED:
                self._permit("list")
                if self._is_present is None:
                    self._accept(None)
            elif event.object.head.name == self._peering.settings.name:
                self._permit("list" if is_listing else "watch")
                if is_listing or not self._is_stale(event.object.head.resourceVersion):
                    self._accept(None if event.type == "DELETED" else event.object)

    def _is_stale(self, version: str) -> bool:
        """The responses to our keep-alives can be ahead of the stream: it must not bring back what is over."""
        return version.isdecimal() and self._version.isdecimal() and is_newer(self._version, version)

    def _accept(self, obj: KubeObject | None) -> None:
        """Look at the peering object, or at the absence of it."""
        loop = asyncio.get_running_loop()
        was_there = self._peers.has_us
        status = None if obj is None else _get_status(obj)
        problems = self._peers.take(status, now=self._peering.runtime.clock.now(), time=loop.time())
        self._version = "" if obj is None else obj.head.resourceVersion
        for identity, problem in itertools.islice(problems.items(), _MAX_PROBLEMS):
            logger.warning("The record of %r in the peering %s is ignored: %s", identity, self.place, problem)
        if len(problems) > _MAX_PROBLEMS:
            logger.warning("So are %d other records in the peering %s.", len(problems) - _MAX_PROBLEMS, self.place)
        has_appeared = obj is not None and not self._is_present and not self._is_announced
        self._is_present = obj is not None
        if has_appeared or (obj is not None and was_there and not self._peers.has_us):
            self._hurry.set()
        if not self._is_present and self._is_announced:
            self._is_announced = False
        self._decide()

    # ------------------------------------------------------------------ deciding

    def _decide(self) -> None:
        """Pause or resume by what is known now."""
        is_mandatory = self._peering.settings.mandatory
        if is_mandatory and "patch" in self._denied:
            self._hold("not permitted to take part in it")
        elif self._is_present:
            self._compare()
        elif self._is_present is None and not self._denied >= {"patch", "list"}:
            return  # it is not known yet
        elif is_mandatory:
            self._hold(self._explain_absence())
        else:
            if self._is_present is False:
                self._peering.fall_back()
            self._go_on()
        self.decided.set()

    def _compare(self) -> None:
        loop = asyncio.get_running_loop()
        priority = self._peering.settings.priority
        standing = self._peers.get_standing(priority, time=loop.time())
        if standing.identities != self._standing.identities and standing.is_paused:
            self._announce(standing)
        self._standing = standing
        if standing.is_paused:
            self.is_pausing = True
            others = [*standing.seniors, *standing.rivals]
            self._peering.runtime.pause.hold(self, f"in favour of {show_peers(others)} by the peering {self.place}")
            self._note_seniors(others)
        else:
            self._go_on()
        if self._death is not None:
            self._death.cancel()
        death = self._peers.get_next_death(time=loop.time())
        self._death = None if death is None else loop.call_at(death, self._check_death)

    def _note_seniors(self, peers: Sequence[Peer]) -> None:
        """Let the health tell for how long this can last."""
        get = self._peers.get_deadline
        seniors = [Senior(p.identity, p.priority, p.lifetime, p.is_limited, get(p)) for p in peers[:_MAX_SHOWN]]
        self._peering.runtime.liveness.note_seniors(self.place, seniors)

    def _check_death(self) -> None:
        """Somebody seems to be dead. It can be our stream that is, so take a fresh look before taking over."""
        if "patch" in self._denied:
            self._decide()
        else:
            self._hurry.set()

    def _announce(self, standing: Standing) -> None:
        if standing.seniors:
            logger.info("Pausing operations in favour of %s.", show_peers(standing.seniors))
        else:
            logger.warning("Possibly conflicting operators with the same priority: %s.", show_peers(standing.rivals))
            logger.warning(
                "Pausing all operators, including self: %s. Give them different priorities, or leave only one.",
                show_peers([self._describe_us(), *standing.rivals]),
            )

    def _hold(self, reason: str) -> None:
        if not self.is_pausing:
            logger.warning("Pausing operations: the peering %s is mandatory, and it is %s.", self.place, reason)
        self.is_pausing = True
        self._standing = Standing()
        self._note_seniors([])
        self._peering.runtime.pause.hold(self, f"the peering {self.place} is mandatory, and it is {reason}")

    def _go_on(self) -> None:
        self._peering.release(self)
        self._note_seniors([])
        self._standing = Standing()
        self.is_pausing = False

    def _explain_absence(self) -> str:
        name, namespace = self._peering.settings.name, self._scope
        if self._resource is None:
            kind = "ClusterKopfPeering" if namespace is None else "KopfPeering"
            return f"absent: the kind {kind} is not defined in the cluster"
        metadata = f"{{name: {name}}}" if namespace is None else f"{{name: {name}, namespace: {namespace}}}"
        head = f"apiVersion: {self._resource.api_version}, kind: {self._resource.kind}"
        return f"absent. Create it: {{{head}, metadata: {metadata}}}"

    def _deny(self, verb: str, error: APIForbiddenError) -> None:
        """Say once what is not permitted, and what comes of it."""
        assert self._resource is not None
        is_new = verb not in self._denied
        self._denied.add(verb)
        if is_new and self._peering.runtime.warnings.is_new((self._resource, "denied")):
            subresource = "status" if verb == "patch" and "status" in self._resource.subresources else None
            advice = format_advice(self._resource, ("list", "watch", "patch"), namespace=self._scope)
            if subresource is not None:
                advice += " " + format_advice(self._resource, ("patch",), subresource=subresource)
            logger.warning(
                "Not permitted to %s the peering %s. Operators can work at the same time without knowing of each "
                "other. The error: %s. Run with --standalone if that is fine, or: %s",
                verb, self.place, error, advice,
            )
        self._decide()

    def _permit(self, verb: str) -> None:
        self._denied.discard(verb)
