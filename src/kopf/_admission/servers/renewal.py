"""Renewal: the server switches to new certificates, and its clients trust both the old and the new ones meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import ssl
from collections.abc import AsyncGenerator, Callable

from kopf._admission.servers.identities import join_pems
from kopf._admission.servers.tls_setup import TLSSetup, Trust
from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError

logger = logging.getLogger(__name__)

Listen = Callable[[ssl.SSLContext | None], None]

_ERRORS = (OSError, ValueError, APIError, LoginError)  # the next attempt can succeed


class Renewal:
    """
    Keeps one server up to date when its files and certificates are renewed.

    ``trust`` is the state at the start of the server. ``listen`` makes the server use another context for new
    connections. ``interval`` is the pause between two checks, ``delay`` is the time that clients need to notice another
    bundle; both are in seconds.
    """

    def __init__(self, setup: TLSSetup, trust: Trust, listen: Listen, *, interval: float, delay: float) -> None:
        self._setup = setup
        self._trust = trust
        self._listen = listen
        self._interval = interval
        self._delay = delay
        self._complaint: str | None = None

    async def follow(self) -> AsyncGenerator[bytes | None, None]:
        """Look for changes, forever. Yield the bundles to publish."""
        while True:
            await asyncio.sleep(self._get_pause())
            try:
                renewed = await self._setup.examine()
                async with contextlib.aclosing(self._switch(renewed)) as bundles:
                    async for bundle in bundles:
                        yield bundle
            except _ERRORS as e:
                self._complain(e)
            else:
                self._trust, self._complaint = renewed, None

    async def _switch(self, renewed: Trust) -> AsyncGenerator[bytes | None, None]:
        """Begin to use the renewed state, so that the clients trust both the old and the new certificate meanwhile."""
        setup, trust = self._setup, self._trust
        if renewed.serving != trust.serving:
            setup.check(renewed)
            if trust.bundle and renewed.bundle and renewed.bundle != trust.bundle:
                yield join_pems(trust.bundle, renewed.bundle)
                await asyncio.sleep(self._delay)
            self._listen(setup.make_context(renewed))
            logger.info("The webhook server uses the renewed certificates for new connections.")
        if renewed.bundle != trust.bundle:
            yield renewed.bundle
            setup.dump(renewed.bundle)

    def _complain(self, error: Exception) -> None:
        """Log the problem, but only once: the attempt is repeated every minute."""
        if str(error) != self._complaint:
            logger.warning("The webhook server cannot renew its certificates, and uses the previous ones: %s", error)
        self._complaint = str(error)

    def _get_pause(self) -> float:
        """Get the time until the next check, in seconds."""
        identity = self._trust.identity
        deadline = None if identity is None else identity.deadline
        if deadline is None or self._complaint is not None:
            return self._interval
        left = (deadline - datetime.datetime.now(datetime.UTC)).total_seconds()
        return min(self._interval, max(left, 1.0))
