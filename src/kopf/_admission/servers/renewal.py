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


async def follow_renewals(
    setup: TLSSetup, trust: Trust, listen: Listen, *, interval: float, delay: float
) -> AsyncGenerator[bytes | None, None]:
    """
    Keep one server up to date when its files and certificates are renewed, forever. Yield the bundles to publish.

    ``trust`` is the state at the start of the server. ``listen`` makes the server use another context for new
    connections. ``interval`` is the pause between two checks, ``delay`` is the time that clients need to notice another
    bundle; both are in seconds.
    """
    complaint: str | None = None
    while True:
        await asyncio.sleep(interval if complaint is not None else _get_pause(trust, interval))
        try:
            renewed = await setup.examine()
            async with contextlib.aclosing(_switch(setup, trust, renewed, listen, delay)) as bundles:
                async for bundle in bundles:
                    yield bundle
        except _ERRORS as e:
            if str(e) != complaint:  # only once: the attempt is repeated every minute
                logger.warning("The webhook server cannot renew its certificates, and uses the previous ones: %s", e)
            complaint = str(e)
        else:
            trust, complaint = renewed, None


async def _switch(
    setup: TLSSetup, trust: Trust, renewed: Trust, listen: Listen, delay: float
) -> AsyncGenerator[bytes | None, None]:
    """Begin to use the renewed state, so that the clients trust both the old and the new certificate meanwhile."""
    if renewed.serving != trust.serving:
        setup.check(renewed)
        if trust.bundle and renewed.bundle and renewed.bundle != trust.bundle:
            yield join_pems(trust.bundle, renewed.bundle)
            await asyncio.sleep(delay)
        listen(setup.make_context(renewed))
        logger.info("The webhook server uses the renewed certificates for new connections.")
    if renewed.bundle != trust.bundle:
        yield renewed.bundle
        setup.dump(renewed.bundle)


def _get_pause(trust: Trust, interval: float) -> float:
    """Get the time until the next check, in seconds."""
    if trust.identity is None or trust.identity.deadline is None:
        return interval
    left = (trust.identity.deadline - datetime.datetime.now(datetime.UTC)).total_seconds()
    return min(interval, max(left, 1.0))
