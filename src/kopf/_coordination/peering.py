"""
Peering: which other operators there are, and whether this one may work.

There is one membership per served namespace, or one for the whole cluster; each of them can pause the whole operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import discover
from kopf._client.resources.targets import Scope
from kopf._controller.runtime import Runtime
from kopf._logging.log_levels import get_internal_level
from kopf._settings.settings import PeeringSettings
from kopf._values.resources import Resource
from kopf._values.selectors import Selector

if TYPE_CHECKING:
    from kopf._coordination.membership import Membership

logger = logging.getLogger(__name__)

_RESCANNING_INTERVAL = 10.0
"""How often to look for the kind of a mandatory peering, or to retry its discovery, in seconds."""


PEERING_GROUPS = ("kopf.dev", "zalando.org")
"""
The API groups of the peering kinds, the preferred one first; the second one is from the earliest versions of Kopf.
"""


async def find_peering_resource(api: APIClient, *, clusterwide: bool) -> Resource | None:
    """Find the kind of peering objects for the scope; ``None`` if the cluster does not define it."""
    plural = "clusterkopfpeerings" if clusterwide else "kopfpeerings"
    selectors = [Selector(group=group, plural=plural) for group in PEERING_GROUPS]
    found = [resource for resource in (await discover(api, selectors)).resources if resource.plural == plural]
    found = [resource for resource in found if resource.preferred and resource.namespaced is not clusterwide]
    return min(found, key=lambda resource: PEERING_GROUPS.index(resource.group), default=None)


class Peering:
    """All memberships of the operator; none in the standalone mode."""

    def __init__(self, runtime: Runtime, identity: str | None) -> None:
        self._runtime = runtime
        self._identity = identity
        self._memberships: dict[Scope, Membership] = {}
        self._resource: Resource | None = None
        self._is_found = False
        self._is_said = False
        self._group: asyncio.TaskGroup | None = None
        self._rescanning = asyncio.Event()

    @property
    def _settings(self) -> PeeringSettings:
        return self._runtime.settings.peering

    @property
    def is_defined(self) -> bool:
        """Whether the kind of the peering objects is known."""
        return self._resource is not None

    def serve(self, scopes: Collection[Scope], terminating: Collection[Scope] = ()) -> None:
        """Bring the memberships in line with the served namespaces, also with those of them that are being deleted."""
        if self._settings.standalone:
            return
        # Standalone operators do not load these modules.
        from kopf._coordination.membership import Membership
        from kopf._coordination.peer_identity import make_identity
        from kopf._coordination.records import Site

        if self._identity is None:
            self._identity = make_identity()
        if self._settings.clusterwide or None in scopes:
            scopes = {None}
        is_starting = not self._memberships
        for scope in sorted(self._memberships.keys() - set(scopes), key=str):
            self._memberships.pop(scope).stop()
        for scope, membership in self._memberships.items():
            membership.follow_namespace(is_terminating=scope in terminating)
        for scope in sorted(set(scopes) - self._memberships.keys(), key=str):
            membership = self._memberships[scope] = Membership(Site(self._runtime, self._identity, scope), self)
            membership.follow_namespace(is_terminating=scope in terminating)
            if is_starting:  # for a later scope, the work goes on in all other ones until it is known
                membership.pause.await_check()
            if self._is_found and self._group is not None:
                membership.start(self._group, self._resource)

    async def clear(self, scope: Scope) -> None:
        """Wait until it is known if the namespace can be served."""
        membership = self._memberships.get(scope) or self._memberships.get(None)
        if membership is not None:
            await membership.decided.wait()

    async def settle(self) -> None:
        """Wait until it is known for all namespaces if they can be served."""
        for membership in list(self._memberships.values()):
            await membership.decided.wait()

    async def run(self) -> None:
        """Take part in the peering forever."""
        if self._settings.standalone:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as self._group:
            while True:
                await self._look_for_kind(self._group)
                if self.is_defined:
                    self._rescanning.clear()  # the search has probably found the changes meanwhile
                is_urgent = not self.is_defined and self._settings.mandatory
                with contextlib.suppress(TimeoutError):
                    timeout = _RESCANNING_INTERVAL if is_urgent or not self._is_found else None
                    async with asyncio.timeout(timeout):
                        await self._rescanning.wait()

    async def _look_for_kind(self, group: asyncio.TaskGroup) -> None:
        self._rescanning.clear()
        try:
            resource = await find_peering_resource(self._runtime.api, clusterwide=self._settings.clusterwide)
        except (APIError, APINetworkError) as e:
            logger.warning("Cannot discover the kinds of peering, and will try again: %s", e)
            return
        if resource != self._resource or not self._is_found:
            self._resource, self._is_found = resource, True
            for membership in self._memberships.values():
                membership.interrupt()
                membership.start(group, resource)

    def rescan(self) -> None:
        """Look for the kinds of peering again: something has changed."""
        self._rescanning.set()

    def fall_back(self) -> None:
        """Log once that there is no peering object."""
        if not self._is_said:
            self._is_said = True
            name = self._settings.name
            what = "Default peering object" if name == "default" else f"The peering object {name!r}"
            logger.log(get_internal_level(), "%s is not found, falling back to the standalone mode.", what)

    def describe(self) -> str:
        """Describe the peering for humans."""
        if self._settings.standalone or self._is_said:
            return "standalone"
        state = " (paused)" if self._runtime.pause.is_on else ""
        return f"in the peering {self._settings.name!r} as {self._identity}{state}"

    async def leave(self, *, for_now: bool = False) -> None:
        """
        Withdraw all records, so that others can start at once instead of waiting for their expiry.

        If this is ``for_now``, pause the operator until :meth:`run` has checked the others again.
        """
        if for_now:
            self._is_found = False
            for membership in self._memberships.values():
                membership.pause.await_check()
        await asyncio.gather(*(membership.leave() for membership in self._memberships.values()))
