"""
Renewal: the server goes on with new certificates, and its clients trust both the old and the new ones meanwhile.
"""

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

_ERRORS = (OSError, ValueError, APIError, LoginError)  # maybe next time


class Renewal:
    """
    Keeps one server up to date with everything that is renewed.

    ``trust`` is what the server has begun with; ``listen`` makes it use another context for new connections.
    ``interval`` is how often to look for changes, ``delay`` is how long the clients need to take notice of another
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
        """Look for changes, forever. Give the bundles to be published."""
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
        """Begin to use what is renewed, so that the clients trust both the old and the new certificate meanwhile."""
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
        """Tell what is wrong with what was renewed; only once, as it is tried again every minute."""
        if str(error) != self._complaint:
            logger.warning("The webhook server cannot renew its certificates, and uses the previous ones: %s", error)
        self._complaint = str(error)

    def _get_pause(self) -> float:
        """How long to wait until something can be different."""
        deadline = self._setup.get_deadline()
        if deadline is None or self._complaint is not None:
            return self._interval
        left = (deadline - datetime.datetime.now(datetime.UTC)).total_seconds()
        return min(self._interval, max(left, 1.0))
