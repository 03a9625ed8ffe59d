"""
The keep-alive: the record of this operator in one peering object, renewed until the operator ends, and then withdrawn.

Each renewal also removes the records of dead operators.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APINotFoundError
from kopf._controller.informer import RETRYING_INTERVAL
from kopf._coordination.peers import Peers
from kopf._coordination.records import Site, patch_records
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_SOON = 10.0
"""The delay until the next renewal after a failure, in seconds."""

_SOONEST = 1.0
"""The shortest pause between keep-alives out of turn, in seconds."""

_LEAVING_TIMEOUT = 5.0
"""How long the withdrawal of the record may delay the exit, in seconds; others notice the end anyway."""


@dataclasses.dataclass(frozen=True)
class AnnouncementCallbacks:
    """The consumers of the results of announcements."""

    accept_response: Callable[[KubeObject | None], None]
    """Gets the peering object after an announcement; ``None`` if it does not exist."""
    accept_denial: Callable[[APIForbiddenError], None]
    """Gets the error if the announcement is not permitted."""
    can_wait: Callable[[], bool]
    """Tells if the operator would notice the appearance of the absent object."""


@dataclasses.dataclass
class RecordState:
    """The state of our record after the last attempt to write it."""

    is_announced: bool = False
    """Whether the record is there."""
    is_denied: bool = False
    """Whether the server denies writing the record."""
    is_failing: bool = False
    """Whether the last attempt has failed, so that the other fields are of an earlier one."""
    can_be_there: bool = False
    """Whether the record possibly exists, also after an attempt with an unknown outcome."""


class Announcer:
    """Keeps our record in one peering object."""

    def __init__(self, site: Site, resource: Resource, peers: Peers, callbacks: AnnouncementCallbacks) -> None:
        self._site = site
        self._resource = resource
        self._peers = peers
        self._callbacks = callbacks
        self.state = RecordState()
        self._tried_at = 0.0
        self._hurry = asyncio.Event()
        self.tried = asyncio.Event()
        """Set after the first attempt: since then, others can see this operator."""

    async def run(self) -> None:
        """Renew the record in time, forever."""
        while True:
            self._hurry.clear()
            await self._keep_alive()
            self.tried.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._get_interval()):
                    await self._hurry.wait()
                await asyncio.sleep(self._tried_at + _SOONEST - asyncio.get_running_loop().time())

    def hurry(self) -> None:
        """Renew the record, and read the fresh state of the others, out of turn."""
        self._hurry.set()

    def _get_interval(self) -> float | None:
        """Return the delay until the next keep-alive: safely within our lifetime, and not in step with the others."""
        if self.state.is_denied:
            return RETRYING_INTERVAL
        if self.state.is_failing:
            return _SOON
        if self._callbacks.can_wait():
            return None
        lifetime = float(self._site.settings.lifetime)
        return max(_SOONEST / 2, lifetime / 2, lifetime - 10 + random.uniform(0, 5))

    async def _keep_alive(self) -> None:
        """Renew our record, remove the records of dead peers, and read the others."""
        self._tried_at = asyncio.get_running_loop().time()
        records: dict[str, Mapping[str, Any] | None] = dict.fromkeys(self._peers.get_remains(time=self._tried_at))
        records[self._site.identity] = self._site.describe_us().make_record()
        state = self.state
        state.can_be_there = True
        try:
            obj = await self._patch(records)
        except APINotFoundError:
            self._log("not found")
            state.can_be_there = state.is_announced = state.is_denied = False
            self._callbacks.accept_response(None)
        except APIForbiddenError as e:
            state.is_denied = True
            state.can_be_there = state.is_announced = False
            self._callbacks.accept_denial(e)
        except (APIError, APINetworkError) as e:
            is_told = state.is_failing or (isinstance(e, APINetworkError) and e.is_told)
            level = logging.DEBUG if is_told else logging.WARNING
            place = self._site.place
            logger.log(level, "Keep-alive in %s has failed, and is tried again: %s", place, e)
            state.is_failing = True
            return
        else:
            self._log("ok")
            state.is_announced, state.is_denied = True, False
            self._callbacks.accept_response(obj)
            self._check_schema()
        state.is_failing = False

    async def _patch(self, records: Mapping[str, Mapping[str, Any] | None]) -> KubeObject:
        site = self._site
        return await patch_records(site.runtime.api, self._resource, site.scope, site.settings.name, records)

    def _log(self, outcome: str) -> None:
        if not self._site.settings.stealth:
            logger.debug("Keep-alive in %s: %s.", self._site.place, outcome)

    def _check_schema(self) -> None:
        """Warn if the API silently drops our record, so that nobody sees it."""
        if not self._peers.has_us and self._site.runtime.warnings.is_new((self._resource, "dropped")):
            logger.warning(
                "The API drops the records of the peering %s, because the schema of %r does not have them. The "
                "operators cannot see each other. Add 'x-kubernetes-preserve-unknown-fields: true' to its status.",
                self._site.place,
                self._resource,
            )

    async def withdraw(self) -> None:
        """Remove the record, if it possibly exists."""
        if not self.state.can_be_there:
            return
        try:
            async with asyncio.timeout(_LEAVING_TIMEOUT):
                await self._patch({self._site.identity: None})
        except APINotFoundError:
            pass
        except (APIError, APINetworkError, LoginError, TimeoutError) as e:
            logger.warning(
                "Could not withdraw from the peering %s. The other operators resume in %s seconds: %s",
                self._site.place,
                self._site.settings.lifetime,
                str(e) or "no response in time",
            )
