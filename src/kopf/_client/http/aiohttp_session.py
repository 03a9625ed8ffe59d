"""
Sessions of ``aiohttp``: for what our own ones cannot do, i.e. for proxies, and those that login handlers have made.

The library is 8 MiB of memory, so it is imported only when there is such a session.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Mapping

import aiohttp
import yarl

from kopf._client.http import proxies
from kopf._client.http.closings import Closings
from kopf._client.http.transport import (
    ConnectTimeoutError,
    Limits,
    Response,
    Session,
    SilenceError,
    TransportError,
    UnreachableError,
)

ERRORS: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError)
"""Everything that means that the network is to blame."""

_LARGE_BODY = 2**20  # aiohttp complains of larger bodies if they are not streamed


class AiohttpSession:
    """A session behind the face of ours, see :class:`kopf._client.http.transport.Session`; its errors are ours, too."""

    def __init__(
        self,
        raw: aiohttp.ClientSession,
        server: str,
        *,
        server_hostname: str | None = None,
        errors: tuple[type[Exception], ...] = ERRORS,
        closings: Closings | None = None,
    ) -> None:
        self.raw = raw
        """The session of the library."""
        self._base = server.rstrip("/")
        self._server_hostname = server_hostname
        self._errors = errors
        self._closings = closings

    @property
    def closed(self) -> bool:
        """Whether it cannot be used anymore: ready-made sessions can be closed by their makers."""
        return self.raw.closed

    @property
    def headers(self) -> Mapping[str, str]:
        """What is sent with all requests."""
        return self.raw.headers

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Replace some headers."""
        self.raw.headers.update(headers)

    def retire(self) -> None:
        """Leave it to the library, which drops unused connections in time: ready-made sessions can be shared."""

    def shares_connections(self, other: Session) -> bool:
        """Tell if the other one has the same session of the library."""
        return isinstance(other, AiohttpSession) and other.raw is self.raw

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None, limits: Limits
    ) -> AsyncIterator[Response]:
        """Make a request."""
        try:
            async with self.raw.request(
                method,
                yarl.URL(self._base + target, encoded=True),
                data=io.BytesIO(body) if body is not None and len(body) >= _LARGE_BODY else body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=limits.total, sock_connect=limits.connect, sock_read=limits.inactivity
                ),
                server_hostname=self._server_hostname,
                raise_for_status=False,  # ready-made sessions may have it, while the body is needed
                allow_redirects=False,  # to whomever: it would take the body there, and bring anything back
            ) as response:
                yield _AiohttpResponse(response)
        except self._errors as exc:
            proxies.drop_secrets(exc)
            raise _translate(exc) from exc

    async def close(self) -> None:
        """Close all connections."""
        await self.raw.close()
        if self._closings is not None:
            await self._closings.wait()


class _AiohttpResponse:
    def __init__(self, raw: aiohttp.ClientResponse) -> None:
        self._raw = raw

    @property
    def status(self) -> int:
        return self._raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._raw.headers

    async def read_chunk(self) -> bytes:
        return await self._raw.content.readany()


def _translate(exc: Exception) -> OSError:
    text = str(exc) or type(exc).__name__
    match exc:
        case aiohttp.ConnectionTimeoutError():
            return ConnectTimeoutError(text)
        case aiohttp.ServerTimeoutError():
            return SilenceError(text)
        case TimeoutError():
            return TimeoutError(*exc.args)
        case aiohttp.ClientConnectorError():
            error: TransportError = UnreachableError(text)
        case _:
            error = TransportError(text)
    error.hint = proxies.get_hint(exc)
    return error
