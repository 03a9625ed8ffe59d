"""
Endpoint: takes the reviews out of HTTP requests, and puts the responses into HTTP responses.

It is open to everybody who can reach it, so it limits everything that a client can exhaust: the time to connect and
to send a request, its size, the time of idleness. Whatever comes, the client gets a response, and the log gets
a line with no contents of the request: there can be secrets in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from kopf._values import codec
from kopf._values.reviews import ReviewError, WebhookFn

logger = logging.getLogger(__name__)

MAX_BODY = 16 * 1024 * 1024
"""In bytes. A review has up to two objects; Kubernetes accepts up to 3 MiB of each, and JSON can be escaped."""

OPENING_TIMEOUT = 10.0
"""How long a new connection may take until the first headers are there, in seconds, including the TLS handshake."""

BODY_TIMEOUT = 10.0
"""How long the body may take, in seconds."""

IDLE_TIMEOUT = 180.0
"""How long an idle connection is kept, in seconds. API servers keep them for 90 seconds: it must be them who close."""

_FAREWELL_TIMEOUT = 1.0
_LINGERING_TIMEOUT = 1.0
_BACKLOG = 1024

# As in "timeout=10s", which API servers add to the URL, in the format of durations in Go.
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


class Refusal(Exception):
    """The request is not going to be handled; the response is of this HTTP status and with this text."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class _FollowingServer(web.Server):
    """A server that knows which of its connections are not closed yet, with the goodbyes of TLS."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open: set[RequestHandler] = set()
        self._emptied = asyncio.Event()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open.add(handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.discard(handler)
        if not self._open:
            self._emptied.set()

    async def wait_until_disconnected(self) -> None:
        """Wait for the ends of all connections, as nobody else does: the event loop can be closed right after."""
        self._emptied.clear()
        if self._open:
            with contextlib.suppress(TimeoutError):  # TLS has the same limit, and breaks what does not end by itself
                await asyncio.wait_for(self._emptied.wait(), _FAREWELL_TIMEOUT + 1)
        for _ in range(3):  # the transports are closed in the next iterations of the loop
            await asyncio.sleep(0)


async def _stop_accepting(listeners: Sequence[asyncio.Server]) -> None:
    """
    Stop listening, but only when whatever is accepted already has become a connection.

    Until Python 3.13, the sockets accepted right before the end of the listener are lost: nobody would answer there.
    """
    loop = asyncio.get_running_loop()
    for listener in listeners:
        for sock in listener.sockets:
            loop.remove_reader(sock)
    for _ in range(2):  # a task is created for every accepted socket; it makes a connection when it begins
        await asyncio.sleep(0)
    for listener in listeners:
        listener.close()


class Endpoint:
    """One address where reviews are accepted, under one path."""

    def __init__(
        self,
        fn: WebhookFn,
        *,
        path: str = "",
        max_body: int = MAX_BODY,
        opening_timeout: float = OPENING_TIMEOUT,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        """Serve the paths that begin with ``path``, which has a slash in the beginning and none in the end."""
        self._fn = fn
        self._path = path
        self._max_body = max_body
        self._opening_timeout = opening_timeout
        self._body_timeout = body_timeout
        self._closing = False
        self._listeners: list[asyncio.Server] = []
        self._opening: dict[RequestHandler, asyncio.TimerHandle] = {}
        self._http = _FollowingServer(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            logger=_http_logger,
            keepalive_timeout=IDLE_TIMEOUT,
            lingering_time=_LINGERING_TIMEOUT,
            auto_decompress=False,
        )

    async def listen(self, sockets: list[socket.socket], context: ssl.SSLContext | None) -> None:
        """
        Accept connections from the sockets, with TLS if there is a context for it.

        It can be called again with another context: then new connections use it. None of them is refused meanwhile,
        and nothing changes for the current connections.
        """
        loop = asyncio.get_running_loop()
        listeners: list[asyncio.Server] = []
        try:
            for sock in sockets:
                copy = sock.dup()
                copy.setblocking(False)
                listener = await loop.create_server(
                    self._accept,
                    sock=copy,
                    ssl=context,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=None if context is None else self._opening_timeout,
                    ssl_shutdown_timeout=None if context is None else _FAREWELL_TIMEOUT,
                )
                listeners.append(listener)
            listeners, self._listeners = self._listeners, listeners
        finally:  # either the previous ones, or those that are of no use without the others
            await _stop_accepting(listeners)

    async def close(self, timeout: float) -> None:
        """Stop accepting connections and requests, let the current ones finish for some time (seconds)."""
        self._closing = True
        await _stop_accepting(self._listeners)
        # What has come by now, is served; as well as what arrives at the connections that are not idle.
        for _ in range(3):
            await asyncio.sleep(0)
        self._http.pre_shutdown()
        for _ in range(3):
            await asyncio.sleep(0)
        await self._http.shutdown(timeout)
        for protocol in list(self._opening):
            self._abort(protocol)
        await self._http.wait_until_disconnected()

    def _accept(self) -> asyncio.BaseProtocol:
        """Make a protocol for a new connection; the timer is for those who connect and stay silent."""
        protocol = self._http()
        loop = asyncio.get_running_loop()
        self._opening[protocol] = loop.call_later(self._opening_timeout, self._abort, protocol)
        return protocol

    def _abort(self, protocol: RequestHandler) -> None:
        if (timer := self._opening.pop(protocol, None)) is not None:
            timer.cancel()
        if protocol.transport is not None:
            protocol.transport.abort()

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if (timer := self._opening.pop(protocol, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._max_body)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        try:
            body = codec.encode(await self._answer(request))
            response = web.Response(body=body, content_type="application/json")
        except Refusal as refusal:
            logger.warning("A request to %.100r from %s is refused: %s", request.path, request.remote, refusal)
            response = web.Response(status=refusal.status, text=f"{refusal}\n", headers=refusal.headers)
        except Exception:
            logger.exception("An admission review from %s cannot be handled.", request.remote)
            response = web.Response(status=500, text="The operator has failed to handle it; see its log.\n")
        if self._closing:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> Mapping[str, Any]:
        webhook = self._find_webhook(request)
        if request.method != "POST":
            raise Refusal(405, f"Admission reviews are to be sent by POST, not by {request.method}.", {"Allow": "POST"})
        timeout = _parse_timeout(request.query.get("timeout"))
        payload = _parse(await self._read(request))
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._fn(
                    payload,
                    webhook=webhook,
                    headers=request.headers,
                    sslpeer=request.get_extra_info("peercert") or None,
                )
        except ReviewError as e:
            raise Refusal(e.status, str(e)) from e
        except TimeoutError:
            if not limit.expired():
                raise
            raise Refusal(504, f"The admission review was not handled in {timeout:g} seconds.") from None

    def _find_webhook(self, request: web.BaseRequest) -> str | None:
        """Get the id of the webhook out of the path. None of the webhooks if there is only the root path."""
        path = request.path
        if path != self._path and not path.startswith(f"{self._path}/"):
            raise Refusal(404, "There are no webhooks at this path.")
        return path[len(self._path) :].strip("/") or None

    async def _read(self, request: web.BaseRequest) -> bytes:
        too_large = Refusal(413, f"The request is larger than {self._max_body} bytes.")
        if (request.content_length or 0) > self._max_body:
            raise too_large
        try:
            async with asyncio.timeout(self._body_timeout):
                if request.headers.get("Expect", "").lower() == "100-continue":  # curl asks so for large ones
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    request.writer.output_size = 0
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise too_large from None
        except TimeoutError:
            raise Refusal(408, f"The request was not sent in {self._body_timeout:g} seconds.") from None
        except (web.RequestPayloadError, ConnectionError):
            raise Refusal(400, "The request is broken or incomplete.") from None


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        payload = codec.decode(body)
    except (ValueError, RecursionError) as e:  # the text has positions, but no contents
        raise Refusal(400, f"The request is not a JSON document: {e}") from None
    if not isinstance(payload, dict):
        raise Refusal(400, "The request is not an admission review: it must be a JSON object.")
    return payload


def _parse_timeout(text: str | None) -> float | None:
    """Parse the time that the API server is going to wait, in seconds. There is no limit if others do not tell it."""
    match = _DURATION.fullmatch(text) if text else None
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = match.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)


class _Silence(logging.Filter):
    """Keeps tracebacks out of the log if it is only that somebody does not speak HTTP."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            logger.debug("A request is refused, as it is not HTTP: %s", type(error).__name__)
            return False
        return True


_http_logger = logging.getLogger(f"{__name__}.http")
_http_logger.addFilter(_Silence())
