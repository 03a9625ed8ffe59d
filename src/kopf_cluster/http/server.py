"""
The HTTP side: connections, authentication, limits, faults, and counters around an application without HTTP.

One catch-all handler serves all paths, as the application resolves them itself. A client always gets a `Status`, and
never a traceback.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import gzip
import logging
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import msgspec
from aiohttp import http_exceptions, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDictProxy

from kopf_cluster import encodings, statuses
from kopf_cluster.audit import Audit
from kopf_cluster.faults.admin import PREFIX, Admin, KubeconfigIssuer
from kopf_cluster.faults.clients import Clients
from kopf_cluster.faults.fault_rules import FaultRule
from kopf_cluster.faults.faults import Faults, ServerControl
from kopf_cluster.faults.lagging import Delay, retell
from kopf_cluster.http.client_connections import (
    UNLIMITED,
    Connections,
    Listener,
    connection_logger,
    is_plain,
    take_token,
)
from kopf_cluster.http.shortcuts import ShortRequest
from kopf_cluster.requests import SUPERUSERS, Answer, Call, Identity, Request, Stream, User, refuse, resolve

logger = logging.getLogger("kopf.cluster")

MAX_BODY: Final = 3 * 1024 * 1024


class Orders(msgspec.Struct, frozen=True):
    """The functions of the owner of the server, on demand."""

    expire_token: Callable[[], None]
    restart: Callable[[bool], None]
    """Restarts soon, with the data or without."""
    issue_kubeconfig: KubeconfigIssuer


class Application(Protocol):
    """Authenticates and answers the requests."""

    def authenticate(self, identity: Identity) -> User: ...

    def answer(self, call: Call, request: Request) -> Answer | Stream | Awaitable[Answer | Stream]: ...


_SHUTDOWN_TIMEOUT: Final = 0.5

MIN_COMPRESSED: Final = 128 * 1024
"""The minimal size of compressed answers, in bytes; as in kube-apiserver."""


class HTTPServer:
    """Serves the application over TLS on one address."""

    def __init__(
        self,
        application: Application,
        faults: Faults,
        audit: Audit,
        context: ssl.SSLContext,
        *,
        compact: Callable[[], None],
        orders: Orders,
    ) -> None:
        self._application = application
        self.counters: collections.Counter[tuple[str, str, int]] = collections.Counter()
        """The numbers of answered requests by verb, resource, and code."""
        self.is_open = True
        """Whether it accepts requests, until it is stopped."""
        self._faults = faults
        self._audit = audit
        self._compact = compact
        self._orders = orders
        self._admin = Admin(faults, self.counters, audit, orders.issue_kubeconfig)
        self._changed = asyncio.Event()
        self._streams: dict[asyncio.Task[Any], tuple[Request, asyncio.Transport | None]] = {}
        self._ending: set[asyncio.Task[Any]] = set()
        self._asked: dict[asyncio.Task[Answer], None] = {}
        self._delays: dict[Delay, None] = {}
        self._watch_timer: asyncio.TimerHandle | None = None
        self._server = Connections(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=UNLIMITED,
            lingering_time=0.0,
            logger=connection_logger,
        )
        self._listener = Listener(self._server, context)

    def start(self, host: str, port: int) -> int:
        """Start to listen; return the port. Faults are applied in the current loop from now on."""
        loop = asyncio.get_running_loop()
        port = self._listener.open(host, port)
        self._faults.bind(
            ServerControl(
                cut=lambda clean, clients: _call_soon(loop, self._cut, clean, clients),
                compact=lambda: _call_soon(loop, self._compact),
                expire_token=lambda: _call_soon(loop, self._orders.expire_token),
                restart=lambda keep_data: _call_soon(loop, self._orders.restart, keep_data),
                changed=lambda: _call_soon(loop, self._apply_faults),
            )
        )
        self._apply_faults()
        return port

    def accept(self) -> RequestHandler:
        """Return the server side of a connection in memory."""
        return self._server()

    def ask(self, request: ShortRequest) -> asyncio.Task[Answer]:
        """Start to answer a request without a connection, in its own context."""
        task = asyncio.create_task(self._answer_shortly(request), context=contextvars.Context())
        self._asked[task] = None
        task.add_done_callback(self._asked.pop)
        return task

    async def _answer_shortly(self, request: ShortRequest) -> Answer:
        await request.arrive()
        return cast(Answer, await self._answer(request))  # only those with connections get anything else

    async def stop(self) -> None:
        """Stop listening, end all streams, close all connections."""
        self._faults.bind(None)
        self.is_open = False
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        await self._listener.close()
        for task in [*self._streams, *self._asked]:
            task.cancel()
        self._server.is_over = True
        # Idle connections would be waited for: clients keep them for later, and do not close them for us.
        for handler in self._server.connections:
            if handler.transport is not None:
                handler.transport.abort()
        await self._server.shutdown(_SHUTDOWN_TIMEOUT)
        # The transports report their ends to the loop in its next iterations.
        for _ in range(3):
            await asyncio.sleep(0)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        if is_plain(protocol.transport):
            message = take_token(message)
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        answer = await self._answer(http)
        return _respond(http, answer) if isinstance(answer, Answer) else answer

    async def _answer(self, http: web.BaseRequest | ShortRequest) -> Answer | web.StreamResponse:
        """Return the answer, or the response of a stream, which is sent already."""
        call, user = Call(http.method.lower()), None
        try:
            request = await self._read(http)
            user = request.user
            call = resolve(request)
            if request.path[:1] == (PREFIX,):  # neither disturbed nor counted
                _require_superuser(request)
                return self._admin.answer(request)
            rule = self._faults.decide(call, request, http.path) if self._faults.is_active else None
            if rule is not None:
                await _disturb(rule, http)
            while self._faults.is_held(request):
                await self._changed.wait()
            if self._faults.is_partitioned(request):
                _disconnect(http)
            answer = self._application.answer(call, request)
            if isinstance(answer, Awaitable):
                answer = await answer
            if rule is not None and rule.action == "lose-answer":
                self._audit.note(user, call, _whole(answer), agent=request.agent, path=http.path)
                _disconnect(http)
            if not isinstance(answer, Answer):
                if not isinstance(http, web.BaseRequest):
                    raise TypeError("a stream needs a connection")
                self._note(http, user, call, _whole(answer))
                return await self._send_stream(http, call, request, answer)
        except statuses.APIStatus as status:
            answer = _refuse(http, status)
        except RecursionError:  # nothing is stored before everything is known of the new state
            answer = _refuse(http, statuses.bad_request("the object is nested too deeply"))
        except Exception:
            logger.exception("The local cluster has failed to handle %s %s", http.method, http.path)
            answer = _refuse(http, statuses.internal("unexpected failure of the local cluster, see its logs"))
        self._note(http, user, call, answer)
        return answer

    async def _read(self, http: web.BaseRequest | ShortRequest) -> Request:
        """Read the whole request, and authenticate it."""
        raw_path, _, raw_query = http.raw_path.partition("?")
        headers = http.headers
        user = self._application.authenticate(
            Identity(raw_path, headers.get("Authorization", ""), _read_impersonation(headers), _read_subject(http))
        )
        body = b""
        if http.can_read_body:
            try:
                body = await http.read()
            except web.HTTPRequestEntityTooLarge:
                raise statuses.too_large(f"Request entity too large: limit is {MAX_BODY}") from None
            except (web.RequestPayloadError, http_exceptions.HttpProcessingError) as error:
                raise statuses.bad_request(f"the body of the request cannot be read: {error}") from None
        inner = raw_path.removeprefix("/").removesuffix("/")
        path = tuple(urllib.parse.unquote(part) for part in inner.split("/")) if inner else ()
        if "" in path:
            raise statuses.unknown_path()
        query = dict(urllib.parse.parse_qsl(raw_query, keep_blank_values=True)) if raw_query else {}
        content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return Request(
            http.method,
            path,
            query,
            headers.get("Accept", ""),
            content_type,
            body,
            user,
            headers.get("User-Agent", ""),
            raw_query,
        )

    async def _send_stream(
        self,
        http: web.BaseRequest,
        call: Call,
        request: Request,
        stream: Stream,
    ) -> web.StreamResponse:
        headers = {"Content-Type": stream.content_type, "Cache-Control": "no-cache, private", **stream.headers}
        response = web.StreamResponse(headers=headers)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is handled outside of a task")
        self._streams[task] = request, http.transport
        try:
            await response.prepare(http)
            await self._pump(call, request, stream, response)
        except asyncio.CancelledError:
            if task not in self._ending:
                raise
            task.uncancel()  # ended on demand, properly: the last chunk is still to be sent
        except ConnectionError:
            pass  # the client has gone, which is the usual end of a watch
        finally:
            self._streams.pop(task, None)
            self._ending.discard(task)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _pump(self, call: Call, request: Request, stream: Stream, response: web.StreamResponse) -> None:
        """Send the stream with the faults of watches."""

        async def write(piece: bytes) -> None:
            while self._faults.is_silent_for(request):
                await self._changed.wait()
            piece = piece * 2 if self._faults.duplicating else piece
            retellers = self._faults.retellers if stream.content_type == encodings.JSON else ()
            if not retellers:
                await response.write(piece)
                return
            async with contextlib.aclosing(retell(retellers, call, request, piece)) as parts:
                async for part in parts:
                    await response.write(part)

        delay = Delay(write, lambda: self._faults.find_lag(request), self._faults.make_dice(call.resource))
        self._delays[delay] = None
        try:
            async with contextlib.aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    if chunk and not delay.hold(chunk):
                        await write(chunk)
            await delay.flush()
        finally:
            self._delays.pop(delay, None)
            await delay.close()

    def _note(self, http: web.BaseRequest | ShortRequest, user: User | None, call: Call, answer: Answer) -> None:
        self.counters[call.verb, call.resource, answer.status] += 1
        self._audit.note(user, call, answer, agent=http.headers.get("User-Agent", ""), path=http.path)

    def _apply_faults(self) -> None:
        """Apply changed faults: wake held requests, schedule the next cut of watches."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for delay in self._delays:
            delay.reconsider()
        if self._watch_timer is not None:
            self._watch_timer.cancel()
            self._watch_timer = None
        if (drops := self._faults.watch_drops) is not None:
            loop = asyncio.get_running_loop()
            self._watch_timer = loop.call_later(drops.period, self._cut_periodically, drops.clients)

    def _cut_periodically(self, clients: Clients) -> None:
        self._cut(False, clients)
        self._apply_faults()

    def _cut(self, clean: bool, clients: Clients) -> None:
        for task, (request, transport) in list(self._streams.items()):
            if not clients.include(request):
                continue
            if clean:
                self._ending.add(task)
                task.cancel()
            elif transport is not None:
                transport.abort()


async def _disturb(rule: FaultRule, http: web.BaseRequest | ShortRequest) -> None:
    if rule.latency:
        await asyncio.sleep(rule.latency)
    if rule.action == "answer":
        raise rule.make_status()
    if rule.action == "disconnect":
        _disconnect(http)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Any, *args: Any) -> None:
    """Call immediately in the current loop, or soon in a loop of another thread."""
    try:
        current = asyncio.get_running_loop()
    except RuntimeError:
        current = None
    if current is loop:
        function(*args)
    else:
        loop.call_soon_threadsafe(function, *args)


def _read_impersonation(headers: CIMultiDictProxy[str]) -> Mapping[str, Sequence[str]]:
    """Return the headers of impersonation, if there are any."""
    if "Impersonate-User" not in headers and "Impersonate-Group" not in headers:
        return {}
    return {name.lower(): headers.getall(name) for name in headers if name.lower().startswith("impersonate-")}


def _require_superuser(request: Request) -> None:
    """Refuse all other users, regardless of their roles."""
    if SUPERUSERS not in request.user.groups:
        who, what = statuses.quoted(request.user.name), statuses.quoted(f"/{'/'.join(request.path)}")
        why = f"forbidden: User {who} cannot {request.method.lower()} path {what}"
        raise statuses.APIStatus(403, "Forbidden", why, details={})


def _disconnect(http: web.BaseRequest | ShortRequest) -> None:
    """Break the connection; the server cancels the handler when it notices."""
    if http.transport is not None:
        http.transport.abort()
    raise asyncio.CancelledError


def _read_subject(http: web.BaseRequest | ShortRequest) -> Sequence[tuple[str, str]]:
    """Return the subject of the certificate of the client, if there is one; TLS has verified it."""
    certificate = http.transport.get_extra_info("peercert") if http.transport is not None else None
    return [pair for parts in certificate["subject"] for pair in parts] if certificate else ()


def _refuse(http: web.BaseRequest | ShortRequest, status: statuses.APIStatus) -> Answer:
    return encodings.transcode(refuse(status), encodings.choose_plain(http.headers.get("Accept", "")))


def _respond(http: web.BaseRequest, answer: Answer) -> web.Response:
    body, headers = answer.body, {"Content-Type": answer.content_type, **answer.headers}
    if answer.content_type.startswith("application/json") and encodings.wants_indents(
        http.raw_path, http.headers.get("User-Agent", "")
    ):
        body = msgspec.json.format(body, indent=2)
    if len(body) >= MIN_COMPRESSED and "gzip" in http.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, compresslevel=1)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return web.Response(status=answer.status, body=b"" if http.method == "HEAD" else body, headers=headers)


def _whole(answer: Answer | Stream) -> Answer:
    """Return the answer, or the beginning of a stream as an answer."""
    return answer if isinstance(answer, Answer) else Answer(200, b"")
