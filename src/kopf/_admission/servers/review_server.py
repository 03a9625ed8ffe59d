"""
The server of reviews: takes reviews from HTTP requests, and puts their responses into HTTP responses.

It is open to any client, so it limits everything that a client can exhaust: connections (by the HTTP server), bytes (of
the bodies), and the time of handling. Every request gets a response, and every refusal is logged, without the content
of the request, which can be secret. After a refusal, the connection is closed.

Limits of bytes are not enough, as decoded reviews can take 25 times more memory. So this memory is limited, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from kopf._admission.servers.request_limits import Bodies, DecodingBudget, Refusal
from kopf._serving.http_server import OPENING_TIMEOUT, HTTPServer, limit_connections
from kopf._serving.limited_logs import RateLimitedLogger
from kopf._values import codec
from kopf._values.decoded_sizes import estimate_decoded_size
from kopf._values.reviews import EncodedReview, ReviewError, WebhookFn

logger = logging.getLogger(__name__)

MAX_BODY = 7 * 1024 * 1024
"""The largest body, in bytes. A review has up to two objects; Kubernetes accepts up to 3 MiB of each."""

_OBJECT_SHARE = 3 / 7
"""The largest share of one object in a review."""

_GROWTH = 9
"""The largest ratio of memory to bytes for decoded reviews: usual objects take 2 to 8 times more."""

MAX_TOTAL = 32 * 1024 * 1024
"""The largest size of all reviews that are received and handled at the same time, in bytes."""

MAX_CONNECTIONS = 4096
"""The largest number of connections. An API server has one for each review that it waits for."""

BODY_TIMEOUT = 10.0
"""The longest time for a body, in seconds."""

IDLE_TIMEOUT = 180.0
"""The lifetime of idle connections, in seconds. API servers keep them for 90 seconds, and must close them first."""

_LINGERING_TIMEOUT = 1.0
_MAX_MESSAGES = 20  # of the same kind, in a minute
_SUCCESS = 200
_MAX_DURATION = 12  # characters; API servers wait for half a minute at most

_JSON = re.compile(r"application/([\w.-]+\+)?json", re.IGNORECASE)

# As in "timeout=10s", which API servers add to the URL, in the format of durations in Go.
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits for clients: sizes in bytes, times in seconds."""

    max_body: int | None = None
    """``None`` means ``MAX_BODY``."""
    max_total: int = MAX_TOTAL
    max_connections: int | None = None
    """``None`` means ``MAX_CONNECTIONS``, or a quarter of the files that may be open, if that is less."""
    opening_timeout: float = OPENING_TIMEOUT
    body_timeout: float = BODY_TIMEOUT


class ReviewServer:
    """The server of reviews at one address, under one path."""

    def __init__(self, fn: WebhookFn, *, path: str = "", limits: Limits | None = None) -> None:
        """Serve the paths that begin with ``path``, which has a slash at the beginning and none at the end."""
        limits = limits if limits is not None else Limits()
        self._fn = fn
        self._path = path
        max_body = MAX_BODY if limits.max_body is None else limits.max_body
        max_total = max(limits.max_total, max_body)
        self._bodies = Bodies(max_body=max_body, max_total=max_total, timeout=limits.body_timeout)
        self._budget = DecodingBudget(max_body * _GROWTH, max_waiting=max_total // 2, timeout=limits.body_timeout)
        self._max_object = int(max_body * _OBJECT_SHARE)
        self._closing = False
        self._logger = RateLimitedLogger(logger, burst=_MAX_MESSAGES)
        default_limit = limit_connections(most=MAX_CONNECTIONS, share=4)
        self._http = HTTPServer(
            self._handle,
            title="The webhook server",
            limit=default_limit if limits.max_connections is None else limits.max_connections,
            opening_timeout=limits.opening_timeout,
            idle_timeout=IDLE_TIMEOUT,
            lingering_timeout=_LINGERING_TIMEOUT,
        )

    def listen(self, sockets: Sequence[socket.socket], context: ssl.SSLContext | None) -> None:
        """
        Accept connections from the sockets, with TLS if there is a context.

        After another call with another context, new connections use that one. Meanwhile, no connection is refused, and
        nothing changes for the current connections.
        """
        self._http.listen(sockets, context)

    async def close(self, timeout: float) -> None:
        """Stop accepting connections and requests. Let the current ones finish until the timeout, in seconds."""
        self._closing = True
        await self._http.close(timeout)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        try:
            body = codec.encode(await self._answer(request))
            response = web.Response(body=body, content_type="application/json")
        except Refusal as refusal:
            self._logger.warning("A request to %.100r from %s is refused: %s", request.path, request.remote, refusal)
            response = web.Response(status=refusal.status, text=f"{refusal}\n", headers=refusal.headers)
        except Exception:
            self._logger.exception("An admission review from %s cannot be handled.", request.remote)
            response = web.Response(status=500, text="The operator has failed to handle it; see its log.\n")
        if self._closing or response.status != _SUCCESS:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> Mapping[str, Any]:
        webhook = self._find_webhook(request)
        if request.method != "POST":
            raise Refusal(405, f"Admission reviews must be sent by POST, not by {request.method}.", {"Allow": "POST"})
        if not _JSON.fullmatch(request.content_type):
            raise Refusal(415, f"Admission reviews must be application/json, not {request.content_type!r:.100}.")
        timeout = _parse_timeout(request.query.get("timeout"))
        async with self._bodies.reading(request) as body:
            with self._http.serving(request):
                return await self._call(request, body, webhook, timeout)

    async def _call(
        self, request: web.BaseRequest, body: bytes, webhook: str | None, timeout: float | None
    ) -> Mapping[str, Any]:
        size = estimate_decoded_size(body, enough=self._budget.max_size)
        try:
            async with asyncio.timeout(timeout) as limit, self._budget.taking(size, len(body)):
                return await self._fn(
                    EncodedReview(body, max_object=self._max_object),
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
        """Get the path of the webhook; ``None`` for the root path."""
        path = request.path
        if path != self._path and not path.startswith(f"{self._path}/"):
            raise Refusal(404, "There are no webhooks at this path.")
        return path[len(self._path) :].strip("/") or None


def _parse_timeout(text: str | None) -> float | None:
    """Parse the time for which the API server waits, in seconds; ``None`` if the client does not tell it."""
    match = _DURATION.fullmatch(text) if text else None
    if match is None or not any(match.groups()):
        return None
    if len(text or "") > _MAX_DURATION:
        raise Refusal(400, "The timeout in the URL is too long.")
    hours, minutes, seconds = match.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)
