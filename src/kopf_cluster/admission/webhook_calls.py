"""
Calls of webhooks: from the client config of a configuration to the bytes of an answer, over verified HTTPS.

A service is not resolved by DNS, as there is no network of a cluster: it is looked up among the registered local
addresses, but its certificate must be for the name of the service, as it is in reality.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec

from kopf_cluster import codec

_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
}


class CallError(Exception):
    """A webhook was not called, or has not answered properly."""


class Target(msgspec.Struct, frozen=True):
    """Where to send the request: the address to connect to, and the address to be shown and verified."""

    shown: str
    actual: str
    server_name: str | None


Services: TypeAlias = dict[tuple[str, str], tuple[str, int]]
"""Which local addresses (hosts and ports) stand for services of the cluster (by namespaces and names)."""


class Caller:
    """Calls the webhooks over connections that are kept."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, config: Mapping[str, Any], document: Any, timeout: float) -> bytes:
        """Send the document; return the answer, or raise `CallError`. The timeout is in seconds."""
        target = self._resolve(config, timeout)
        shown = f'Post "{target.shown}"'
        context = self._make_context(config.get("caBundle") or "")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), trust_env=False)
        try:
            async with asyncio.timeout(timeout):
                async with self._session.post(
                    target.actual,
                    data=io.BytesIO(codec.encode(document)),
                    headers=_HEADERS,
                    ssl=context,
                    server_hostname=target.server_name,
                    allow_redirects=False,
                ) as response:
                    body = await response.read()
        except TimeoutError:
            raise CallError(f"{shown}: context deadline exceeded") from None
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            raise CallError(f"{shown}: tls: failed to verify certificate: x509: {why}") from None
        except (aiohttp.ClientError, OSError) as error:
            why = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            raise CallError(f"{shown}: {why}") from None
        if response.status != 200:
            raise CallError(_explain(response.status, body))
        return body

    def _resolve(self, config: Mapping[str, Any], timeout: float) -> Target:
        query = f"timeout={timeout:g}s"
        if config.get("url"):
            url = str(config["url"])
            if urllib.parse.urlsplit(url).scheme != "https":
                raise CallError(f'"{url}" cannot be called: only https is allowed')
            full = f"{url}{'&' if '?' in url else '?'}{query}"
            return Target(full, full, None)
        service = config.get("service") or {}
        namespace, name = service.get("namespace", ""), service.get("name", "")
        server_name, path = f"{name}.{namespace}.svc", "/" + str(service.get("path") or "").lstrip("/")
        shown = f"https://{server_name}:{service.get('port') or 443}{path}?{query}"
        address = self._services.get((namespace, name))
        if address is None:
            raise CallError(
                f'Post "{shown}": service "{name}" not found (the local cluster knows those services '
                "that are registered with register_service)"
            )
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return Target(shown, f"https://{host}:{address[1]}{path}?{query}", server_name)

    def _make_context(self, bundle: str) -> ssl.SSLContext:
        """Trust only the bundle; with none, the authorities of the system."""
        if bundle not in self._contexts:
            try:
                text = base64.b64decode(bundle, validate=True).decode("ascii")
                self._contexts[bundle] = ssl.create_default_context(cadata=text or None)
            except (binascii.Error, ValueError, ssl.SSLError):
                raise CallError("unable to load root certificates: unable to parse bytes as PEM block") from None
        return self._contexts[bundle]


def _explain(status: int, body: bytes) -> str:
    """Tell about an unexpected code in the words of Kubernetes clients."""
    if status == 404:
        return "the server could not find the requested resource"
    if status >= 500:
        text = body.decode(errors="replace")[:200].strip()
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server responded with the status code {status} but did not return more information"
