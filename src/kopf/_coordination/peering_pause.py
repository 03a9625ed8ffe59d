"""The pause because of one peering object: whether the operator may work, by this object alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from kopf._coordination.peers import Peer, Peers, Standing, name_peers, show_peers
from kopf._coordination.records import Site
from kopf._health.liveness import Senior

logger = logging.getLogger(__name__)

_MAX_SHOWN = 10
"""How many peers with priority are shown in the health."""


class PeeringPause:
    """
    Holds and releases the pause of the operator because of one peering object, and logs this.

    ``on_death`` is called when one of the others seems to be dead.
    """

    def __init__(self, site: Site, *, on_death: Callable[[], None]) -> None:
        self._site = site
        self._on_death = on_death
        self._standing = Standing()
        self._death: asyncio.TimerHandle | None = None
        self._is_said = False
        self.is_mandatory = site.settings.mandatory
        """Whether to pause if the operator cannot take part, e.g. if the object is absent."""
        self.peers = Peers(site.identity, site.group)
        """The other operators, as they were last seen."""

    def await_check(self) -> None:
        """Pause the operator until it is known if it may work."""
        self._site.runtime.pause.hold(self, f"the peering {self._site.place} is not checked yet")

    def compare(self) -> None:
        """Pause or go on by the other records, and check again when one of them expires."""
        loop = asyncio.get_running_loop()
        standing = self.peers.get_standing(self._site.settings.priority, time=loop.time())
        if standing.identities != self._standing.identities and standing.is_paused:
            self._announce(standing)
        if standing.is_paused:
            self._standing = standing
            self._is_said = True
            others = [*standing.seniors, *standing.rivals]
            reason = f"in favour of {name_peers(others)} by the peering {self._site.place}"
            self._site.runtime.pause.hold(self, reason)
            self._note_seniors(others)
        else:
            self.go_on()
        self.stop_timer()
        death = self.peers.get_next_death(time=loop.time())
        self._death = None if death is None else loop.call_at(death, self._on_death)

    def _announce(self, standing: Standing) -> None:
        if standing.seniors:
            logger.info("Pausing operations in favour of %s.", show_peers(standing.seniors))
        else:
            logger.warning("Possibly conflicting operators with the same priority: %s.", show_peers(standing.rivals))
            logger.warning(
                "Pausing all operators, including self: %s. Give them different priorities, or leave only one.",
                show_peers([self._site.describe_us(), *standing.rivals]),
            )

    def _note_seniors(self, peers: Sequence[Peer]) -> None:
        """Let the health report show how long this can last."""
        get = self.peers.get_deadline
        seniors = [Senior(p.identity, p.priority, p.lifetime, p.is_limited, get(p)) for p in peers[:_MAX_SHOWN]]
        self._site.runtime.liveness.note_seniors(self._site.place, seniors)

    def hold(self, reason: str) -> None:
        """Pause because of a problem with the mandatory peering."""
        if not self._is_said:
            logger.warning("Pausing operations: the peering %s is mandatory, and it is %s.", self._site.place, reason)
        self._is_said = True
        self._standing = Standing()
        self._note_seniors([])
        self._site.runtime.pause.hold(self, f"the peering {self._site.place} is mandatory, and it is {reason}")

    def go_on(self) -> None:
        """Let the operator go on, by this peering object alone."""
        pause = self._site.runtime.pause
        was_on = pause.is_on
        pause.release(self)
        if was_on and self._is_said and not pause.is_on:
            logger.info("Resuming operations after the pause. Nothing stands in the way anymore.")
        self._note_seniors([])
        self._standing = Standing()
        self._is_said = False

    def stop_timer(self) -> None:
        """Stop waiting for the expiry of records."""
        if self._death is not None:
            self._death.cancel()
