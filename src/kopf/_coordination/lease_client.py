"""Requests about Leases: without retries, and with short timeouts, because Leases expire soon."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable

from kopf._client.errors import APIConflictError, APINotFoundError
from kopf._client.http.api import APIClient, Sending
from kopf._client.resources.targets import Target
from kopf._coordination.leases import GROUP_LABEL, Lease, Terms
from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.resources import LEASES

_ATTEMPTS = 2
"""
How many requests fit in the time in which a replica must renew its Lease.

More of them are shorter: then, a server that is slow but alive would never renew a Lease in time.
"""


class LeaseClient:
    """
    Reads and writes the Leases of one group.

    Raises :class:`APIError`, :class:`APINetworkError`, :class:`LoginError`, and :class:`TimeoutError`.
    """

    def __init__(self, api: APIClient, terms: Terms, namespace: str, get_time: Callable[[], datetime.datetime]) -> None:
        self._api = api
        self._terms = terms
        self._get_time = get_time
        self._timeout = terms.renew_deadline / _ATTEMPTS
        self.target = Target(LEASES, namespace, {"labelSelector": f"{GROUP_LABEL}={terms.name}"})

    async def write(self, lease: Lease) -> Lease | None:
        """Write the Lease; return its new state, or ``None`` if it has changed meanwhile."""
        payload = lease.make_patch(self._terms.name, self._get_time())
        if lease.version:
            path = self._get_path(lease.name)
            sending = self._api.patch(path, payload=payload, timeout=self._timeout, backoffs=())
        else:
            sending = self._api.post(self.target.path, payload=payload, timeout=self._timeout, backoffs=())
        try:
            return Lease.parse(KubeObject.from_json(await self._send(sending)))
        except APIConflictError:
            return None
        except APINotFoundError:
            if lease.version:
                return None
            raise  # there is no such namespace

    async def read(self, name: str) -> Lease | None:
        """Read the Lease; ``None`` if it does not exist."""
        try:
            sending = self._api.get(self._get_path(name), timeout=self._timeout, backoffs=())
            return Lease.parse(KubeObject.from_json(await self._send(sending)))
        except APINotFoundError:
            return None

    async def list(self) -> list[Lease]:
        """Read all Leases of the group."""
        params = self.target.selectors
        sending = self._api.get(self.target.path, params=params, timeout=self._timeout, backoffs=())
        items = codec.decode_answer(await self._send(sending))["items"]
        return [Lease.parse(KubeObject.from_dict(item)) for item in items]

    def _get_path(self, name: str) -> str:
        return LEASES.get_url(namespace=self.target.scope, name=name)

    async def _send(self, sending: Sending) -> bytes:
        async with asyncio.timeout(self._timeout):  # also while there are no credentials, or the server is too busy
            return await sending
