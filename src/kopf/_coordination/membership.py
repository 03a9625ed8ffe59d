"""
Membership: the operator's part in one peering object: its own record, and its reaction to the records of others.

A member announces itself before it reads the other records, so of two operators that start together, at least one
notices the other.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIForbiddenError
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.informer import Informer
from kopf._controller.supervision import keep_running
from kopf._coordination.peering_keepalive import AnnouncementCallbacks, Announcer
from kopf._coordination.peering_pause import PeeringPause
from kopf._coordination.peers import Part, choose_part
from kopf._coordination.records import Site, get_records, get_subresource
from kopf._handlers.time_source import time_source
from kopf._values.objects import KubeObject
from kopf._values.permissions import format_advice
from kopf._values.resources import Resource, is_newer

logger = logging.getLogger(__name__)

_MAX_PROBLEMS = 10
"""How many unreadable records are reported at once."""

_UNKNOWN, _ABSENT = None, ""


class Host(Protocol):
    """The owner of the memberships."""

    def rescan(self) -> None:
        """Look for the kinds of peering again."""

    def fall_back(self) -> None:
        """Log that there is no peering object."""


class Membership:
    """The operator in one peering object."""

    def __init__(self, site: Site, host: Host) -> None:
        self._site = site
        self._host = host
        self.pause = PeeringPause(site, on_death=self._check_death)
        """The pause because of this object."""
        self._announcer: Announcer | None = None
        self._informer: Informer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._version: str | None = _UNKNOWN
        """The version of the peering object when it was last read."""
        self.decided = asyncio.Event()
        """Set when it is known if the operator can work there."""

    def start(self, group: asyncio.TaskGroup, resource: Resource | None) -> None:
        """Begin with the found kind of peering objects, or with none."""
        self._announcer = self._informer = None
        if resource is None:
            self._accept(None)
            return
        explain = functools.partial(_explain_denial, self._site, resource)
        # Only the one object, so that permissions for this object are enough.
        selectors = {"fieldSelector": f"metadata.name={self._site.settings.name}"}
        target = Target(resource, self._site.scope, selectors)
        informer = Informer(self._site.runtime, target, explain=explain, on_obstacle=self._accept_obstacle)

        def accept_denial(error: APIForbiddenError) -> None:
            explain("patch", error)
            self._decide()

        def can_wait() -> bool:
            return self._version == _ABSENT and not informer.is_denied("list") and not informer.is_denied("watch")

        self._informer = informer
        callbacks = AnnouncementCallbacks(self._accept, accept_denial, can_wait)
        self._announcer = announcer = Announcer(self._site, resource, self.pause.peers, callbacks)

        async def watch() -> None:
            await announcer.tried.wait()
            await informer.run(self._take)

        name = f"peering {self._site.place}"
        announcing = keep_running(name, announcer.run, fatal=(LoginError,), liveness=self._site.runtime.liveness)
        self._tasks = [group.create_task(announcing, name=name), group.create_task(watch(), name=f"watcher of {name}")]

    def follow_namespace(self, *, is_terminating: bool) -> None:
        """
        Do not insist on the peering object in a namespace that is being deleted.

        Kubernetes deletes it there together with everything else, and nobody can create it again. A paused operator
        would never remove its finalizers, so the namespace would terminate forever.
        """
        is_mandatory = self._site.settings.mandatory and not is_terminating
        if is_mandatory != self.pause.is_mandatory:
            self.pause.is_mandatory = is_mandatory
            self._decide()

    def interrupt(self) -> None:
        """Stop for now; the operator stays paused or not."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.pause.stop_timer()

    def stop(self) -> None:
        """Stop taking part; this does not pause the operator anymore."""
        self.interrupt()
        self.pause.go_on()
        self.decided.set()

    async def leave(self) -> None:
        """Withdraw our record."""
        self.interrupt()
        if self._announcer is not None:
            await self._announcer.withdraw()

    # ------------------------------------------------------------------ looking at the others

    async def _take(self, events: Collection[WatchEvent]) -> None:
        is_listing = self._informer is not None and self._informer.is_listing(events)
        for event in events:
            if event is LISTED:
                if self._version is _UNKNOWN:
                    self._accept(None)
            elif event.object.head.name != self._site.settings.name:
                continue  # the server ignores the selector
            elif is_listing or not _is_stale(event.object.head.resourceVersion, self._version or ""):
                self._accept(None if event.type == "DELETED" else event.object)

    def _accept(self, obj: KubeObject | None) -> None:
        """Accept the peering object, or its absence."""
        peers, runtime = self.pause.peers, self._site.runtime
        was_present, was_there = bool(self._version), peers.has_us
        records = None if obj is None else get_records(obj)
        shown = records if isinstance(records, Mapping) else {}
        runtime.observer.peers_seen(self._site.place, self._site.identity, shown)
        problems = peers.take(records, now=time_source.get().now(), time=asyncio.get_running_loop().time())
        _report(problems, self._site.place)
        self._version = _ABSENT if obj is None else obj.head.resourceVersion
        if self._announcer is not None:
            if obj is None:
                self._announcer.state.is_announced = False
            elif (was_there and not peers.has_us) or (not was_present and not self._announcer.state.is_announced):
                self._announcer.hurry()
        self._decide()

    def _accept_obstacle(self, is_absent: bool) -> None:
        if is_absent:
            self._accept(None)
            self._host.rescan()
        else:
            self._decide()

    def _check_death(self) -> None:
        """Check a peer that seems dead: our stream can be dead instead, so read fresh records before going on."""
        if self._announcer is None or self._announcer.state.is_denied:
            self._decide()
        else:
            self._announcer.hurry()

    # ------------------------------------------------------------------ deciding

    def _decide(self) -> None:
        """Pause or resume the operator by the current knowledge."""
        part = choose_part(
            is_present=None if self._version is _UNKNOWN else self._version != _ABSENT,
            is_mandatory=self.pause.is_mandatory,
            is_denied=self._announcer is not None and self._announcer.state.is_denied,
            is_invisible=self._informer is not None and self._informer.is_denied("list"),
        )
        match part:
            case Part.UNDECIDED:
                return
            case Part.DENIED:
                self.pause.hold("not permitted to take part in it")
            case Part.COMPARED:
                self.pause.compare()
            case Part.ABSENT:
                resource = None if self._informer is None else self._informer.resource
                self.pause.hold(_explain_absence(self._site, resource))
            case Part.ALONE:
                if self._version == _ABSENT and not self._site.settings.mandatory:
                    self._host.fall_back()
                self.pause.go_on()
        self.decided.set()


def _is_stale(version: str, known: str) -> bool:
    """Tell if the stream is behind the responses to our keep-alives: it must not restore old records."""
    return version.isdecimal() and known.isdecimal() and is_newer(known, version)


def _report(problems: Mapping[str, str], place: str) -> None:
    """Log which records have become unreadable, and why."""
    for identity, problem in itertools.islice(problems.items(), _MAX_PROBLEMS):
        logger.warning("The record of %.300r in the peering %s is ignored: %s", identity, place, problem)
    if len(problems) > _MAX_PROBLEMS:
        logger.warning("%d more records in the peering %s are ignored, too.", len(problems) - _MAX_PROBLEMS, place)


def _explain_absence(site: Site, resource: Resource | None) -> str:
    name, namespace = site.settings.name, site.scope
    if resource is None:
        kind = "ClusterKopfPeering" if namespace is None else "KopfPeering"
        return f"absent: the kind {kind} is not defined in the cluster"
    metadata = f"{{name: {name}}}" if namespace is None else f"{{name: {name}, namespace: {namespace}}}"
    head = f"apiVersion: {resource.api_version}, kind: {resource.kind}"
    return f"absent. Create it: {{{head}, metadata: {metadata}}}"


def _explain_denial(site: Site, resource: Resource, verb: str, error: APIForbiddenError) -> None:
    """Log once what is not permitted, and the consequences."""
    if site.runtime.warnings.is_new((resource, "denied")):
        subresource = get_subresource(resource) if verb == "patch" else None
        advice = format_advice(resource, ("list", "watch", "patch"), namespace=site.scope)
        if subresource is not None:
            advice += " " + format_advice(resource, ("patch",), subresource=subresource)
        logger.warning(
            "Not permitted to %s the peering %s. Several operators can work at the same time, unaware of each "
            "other. The error: %s. Run with --standalone if that is fine, or: %s",
            verb,
            site.place,
            error,
            advice,
        )
