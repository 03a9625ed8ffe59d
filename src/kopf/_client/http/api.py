"""
The API client: requests and streams with credentials, timeouts, and retries; bytes in, bytes out.

A request is repeated after network errors, HTTP 5xx, and HTTP 429, as configured in ``settings.networking``. If the
response to a change was lost, the change can have been made, and the repeated request can find it done. The result of
a merge-patch stays the same. Patches guarded by ``metadata.resourceVersion`` or by a JSON-patch ``test`` then get 409
or 422, and creations get 409: callers that use guards must read the fresh state anyway. Creations with
``generateName`` can make two objects.

A request refused with HTTP 401 is repeated at once with other credentials as long as there are any; see the vault.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import urllib.parse
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, TypedDict, Unpack

from kopf._client.auth.vault import Vault
from kopf._client.client_observer import ClientObserver
from kopf._client.errors import (
    APIError,
    APIForbiddenError,
    APINetworkError,
    APIServerError,
    APISilenceError,
    APITooManyRequestsError,
    APIUnauthorizedError,
    make_error,
)
from kopf._client.fencing import Fence
from kopf._client.http import retry_delays
from kopf._client.http.connections import Connection
from kopf._client.http.lines import LineSplitter
from kopf._client.http.reachability import Reachability, describe_failure, describe_page, find_tls_error, is_page
from kopf._client.http.transport import Limits, ProtocolError, Response, SilenceError, TransportError, read_body
from kopf._logging.once import Once
from kopf._settings.settings import Delays, OperatorSettings, iter_delays
from kopf._values import codec
from kopf._values.foreign_values import MAX_WARNED
from kopf._values.patches import MERGE_PATCH
from kopf._values.records import replace

logger = logging.getLogger(__name__)

AnyLogger = logging.Logger | logging.LoggerAdapter[Any]
Payload = bytes | Mapping[str, Any] | list[Any]

JSON = "application/json"

Sending = Coroutine[Any, Any, bytes]
"""A request that is sent when it is awaited, and returns the body of the response."""


LANE_WIDTH = 100
"""
The number of simultaneous requests in one lane, or the limit of workers, if that is higher. It is twice the default
limit of workers, so workers rarely wait.
"""

_RECENTLY = 1.0
"""How long the answer to a question is recent, in seconds."""

_NO_LANE: AbstractAsyncContextManager[None] = nullcontext()


class RequestOptions(TypedDict, total=False):
    """The options of all requests."""

    params: Mapping[str, str] | None
    """The parameters of the query, not quoted."""
    headers: Mapping[str, str] | None
    """The headers besides the credentials."""
    timeout: float | None
    """The timeout of one attempt, in seconds; ``settings.networking.request_timeout`` by default."""
    backoffs: Delays | None
    """The delays between attempts, in seconds; ``settings.networking.error_backoffs`` by default."""
    retry_forbidden: bool
    """Whether to retry after 403. For requests that everybody may make: only a starting server refuses them."""
    lane: Hashable
    """
    Requests of the same lane are limited in number, see ``LANE_WIDTH``. Each request takes a connection, and any number
    of objects can need a patch at the same moment. By default, there is no limit.
    """
    logger: AnyLogger
    """The logger of failed attempts; that of the client by default."""


class RecentAnswer:
    """The latest answer of the server to one question: everybody who asks it within a second shares the answer."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._time = -math.inf
        self._answer: Any = None

    async def get(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer; call ``ask`` for it if it is older than a second."""
        async with self._lock:
            clock = asyncio.get_running_loop()
            if self._time + _RECENTLY <= clock.time():
                self._answer = await ask()
                self._time = clock.time()
            return self._answer


_TEMPORARY_ERRORS = (APINetworkError, APIServerError, APITooManyRequestsError)


class APIClient:
    """
    The client of one operator.

    All methods take ``path``, the quoted path of the URL (see ``Resource.get_url``), and the options in
    :class:`RequestOptions`. ``payload`` is either serialised JSON or a value to serialise. Responses are the bytes of
    the body, not parsed.

    Raises :class:`APIError` (see the subclasses) if the server refuses the request; :class:`APINetworkError` if there
    is no response; :class:`LoginError` if there are no valid credentials; :class:`FencedError` if the request is a
    change and the fence is shut.

    Large because all requests pass through it, with everything that observes and limits them.
    """

    def __init__(self, vault: Vault, settings: OperatorSettings, observer: ClientObserver | None = None) -> None:
        self.observer = ClientObserver() if observer is None else observer
        """The observer of the requests."""
        self.for_tools: APIClient = self
        """The client for external observers of the operator, not for the operator itself: it is never recorded."""
        self.warnings = Once(limit=MAX_WARNED)
        """The warnings about repeated changes that are logged already."""
        self.fence: Fence | None = None
        """The fence: when it is shut, no changes are made. ``None`` if no replicas share the work."""
        self.recent_answers: defaultdict[Hashable, RecentAnswer] = defaultdict(RecentAnswer)
        """The answers to questions that many failed requests raise at once, by the subjects of these questions."""
        self._vault = vault
        self._settings = settings
        self._reachability = Reachability()
        self._lanes: defaultdict[Hashable, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(max(LANE_WIDTH, settings.queueing.worker_limit or 0))
        )

    def get(self, path: str, **options: Unpack[RequestOptions]) -> Sending:
        """Read an object or a listing."""
        return self.request("GET", path, **options)

    def post(self, path: str, *, payload: Payload, **options: Unpack[RequestOptions]) -> Sending:
        """Create an object."""
        return self.request("POST", path, payload, **options)

    def patch(
        self, path: str, *, payload: Payload, content_type: str = MERGE_PATCH, **options: Unpack[RequestOptions]
    ) -> Sending:
        """Change an object; ``content_type`` is the kind of the patch."""
        return self.request("PATCH", path, payload, content_type, **options)

    def delete(self, path: str, *, payload: Payload | None = None, **options: Unpack[RequestOptions]) -> Sending:
        """Delete an object; the payload, if any, is ``DeleteOptions``."""
        return self.request("DELETE", path, payload, **options)

    async def request(
        self,
        method: str,
        path: str,
        payload: Payload | None = None,
        content_type: str = JSON,
        **options: Unpack[RequestOptions],
    ) -> bytes:
        """Make a request, repeat it after temporary failures, and return the body of the response."""
        params, headers, timeout = options.get("params"), options.get("headers"), options.get("timeout")
        target = f"{path}?{urllib.parse.urlencode(params)}" if params else path
        body = payload if payload is None or isinstance(payload, bytes) else codec.encode(payload)
        if body is not None:
            headers = {"Content-Type": content_type, **(headers or {})}
        networking = self._settings.networking
        limits = (
            Limits(total=networking.request_timeout, connect=networking.connect_timeout)
            if timeout is None
            else Limits(total=timeout)
        )
        is_forbidden_temporary = options.get("retry_forbidden", False)
        temporary_errors = (*_TEMPORARY_ERRORS, APIForbiddenError) if is_forbidden_temporary else _TEMPORARY_ERRORS
        lane = _NO_LANE if (key := options.get("lane")) is None else self._lanes[key]
        delays = None
        is_in_doubt = False
        while True:
            try:
                async with lane:
                    return await self.send(method, target, body, headers, limits)
            except (APIError, APINetworkError) as exc:
                is_in_doubt = is_in_doubt or isinstance(exc, (APINetworkError, APIServerError))
                if isinstance(exc, APIError):
                    exc.is_in_doubt = is_in_doubt
                if not isinstance(exc, temporary_errors):
                    raise
                if delays is None:
                    backoffs = options.get("backoffs")
                    delays = iter(iter_delays(networking.error_backoffs if backoffs is None else backoffs))
                delay = retry_delays.get_delay(
                    exc, next(delays, None), enforce_retry_after=networking.enforce_retry_after
                )
                if delay is None:
                    raise
                self.observer.request_retried(method, target, exc, delay)
                reporter = options.get("logger", logger)
                level = logging.DEBUG if isinstance(exc, APINetworkError) and exc.is_told else logging.WARNING
                reporter.log(level, "A request has failed and will be repeated in %g seconds: %s", delay, exc)
            await asyncio.sleep(retry_delays.add_jitter(delay))

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        """
        Open an endless response, and yield its lines, as many at once as have come. There are no retries.

        The first batch is empty: it marks the start of the response. The stream ends normally when the server ends it,
        or after ``settings.watching.client_timeout``. An incomplete last line is dropped. Silence for
        ``settings.watching.inactivity_timeout`` is a network error.
        """
        target = f"{path}?{urllib.parse.urlencode(params)}" if params else path
        limits = self._get_stream_limits()
        while True:
            connection = await self._vault.acquire()
            token = connection.token
            server = connection.credentials.server
            error: APIError | None = None
            status = None
            is_open = False
            try:
                async with connection.session.request("GET", target, None, headers, limits) as response:
                    status = response.status
                    self.observer.stream_answered(server, status)
                    if is_page(response):
                        raise ProtocolError(describe_page(await read_body(response)))
                    self._reachability.note_response(connection.credentials.server)
                    if status < 300:
                        is_open = connection.has_worked = True
                        yield []
                        splitter = LineSplitter()
                        while chunk := await response.read_chunk():
                            if lines := splitter.feed(chunk):
                                yield lines
                        return
                    error = _make_error("GET", target, response, await read_body(response))
                if not self._can_renew(connection, token, error):
                    raise error
            except OSError as exc:
                if status is None:
                    self.observer.stream_failed(server, exc)
                if find_tls_error(exc) is not None and self._vault.renew(connection):
                    continue
                is_timed_out = isinstance(exc, TimeoutError) and not isinstance(exc, TransportError)
                if is_open and is_timed_out:
                    return
                raise self._make_network_error("GET", server, target, exc, is_open) from exc
            finally:
                error = None  # a raised error holds this frame by its traceback: no cycles
                self._vault.release(connection)

    def _get_stream_limits(self) -> Limits:
        watching, networking = self._settings.watching, self._settings.networking
        connect_timeouts = (watching.connect_timeout, networking.connect_timeout, networking.request_timeout)
        return Limits(
            total=watching.client_timeout,
            connect=next((value for value in connect_timeouts if value is not None), None),
            inactivity=watching.inactivity_timeout,
        )

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        limits: Limits,
    ) -> bytes:
        """
        Make one attempt, but with other credentials if the server refuses them; ``target`` is the path with the query.

        Raises the errors of the class. Recordings and replays wrap this method and :meth:`stream`.
        """
        observer = self.observer
        if self.fence is not None and method != "GET":
            limits = replace(limits, check=self.fence.check)
        while True:
            connection = await self._vault.acquire()
            token = connection.token
            server = connection.credentials.server
            error: APIError | None = None
            failure: BaseException | None = None
            status = None
            sent_headers = observer.request_begun(method, target, server, headers)
            started = observer.clock()
            try:
                if limits.check is not None:  # here, too, as not all sessions check it
                    limits.check()
                async with connection.session.request(method, target, body, sent_headers, limits) as response:
                    status = response.status
                    self._reachability.note_response(server)
                    content = await read_body(response)
                    if content[:1] not in b"{[" and is_page(response):
                        raise ProtocolError(describe_page(content))
                    if status < 300:
                        connection.has_worked = True
                        return content
                    error = _make_error(method, target, response, content)
                    error.server = server
                if not self._can_renew(connection, token, error):
                    raise error
            except OSError as exc:
                failure = exc
                if find_tls_error(exc) is not None and self._vault.renew(connection):
                    continue
                failure = self._make_network_error(method, server, target, exc)
                raise failure from exc
            except BaseException as exc:
                failure = exc
                raise
            finally:
                observer.request_ended(method, server, status, failure, started, sent_headers)
                error = failure = None  # a raised error holds this frame by its traceback: no cycles
                self._vault.release(connection)

    def _can_renew(self, connection: Connection, token: str | None, error: APIError) -> bool:
        """Tell if a retry makes sense, with other credentials or with a renewed token."""
        if not isinstance(error, APIUnauthorizedError):
            return False
        # If the token was renewed during the request, the server has refused the old one.
        if connection.token == token and not self._vault.renew(connection):
            self._vault.invalidate(connection, error)
        return True

    def _make_network_error(
        self, method: str, server: str, target: str, exc: Exception, is_open: bool = False
    ) -> APINetworkError:
        cls = APISilenceError if is_open and isinstance(exc, SilenceError) else APINetworkError
        error = cls(describe_failure(method, server, target, exc))
        error.server = server
        reachability = self._reachability
        error.is_told = reachability.note_break(server) if is_open else reachability.note_failure(server, exc, error)
        return error


def _make_error(method: str, target: str, response: Response, content: bytes) -> APIError:
    path = target.partition("?")[0]
    return make_error(status=response.status, method=method, path=path, headers=response.headers, body=content)


_current: ContextVar[tuple[APIClient, asyncio.AbstractEventLoop]] = ContextVar("current_api")


@contextlib.contextmanager
def offering(api: APIClient) -> Iterator[None]:
    """Offer this client to the tools in this context, and in the tasks and threads that it starts."""
    token = _current.set((api, asyncio.get_running_loop()))
    try:
        yield
    finally:
        _current.reset(token)


def get_current_api() -> APIClient:
    """Get the client of the current operator. Raises :class:`LookupError` outside of operators."""
    return _get_current()[0]


def get_current_loop() -> asyncio.AbstractEventLoop:
    """Get the event loop of that client, for calls from threads. Raises :class:`LookupError`, too."""
    return _get_current()[1]


def _get_current() -> tuple[APIClient, asyncio.AbstractEventLoop]:
    try:
        return _current.get()
    except LookupError:
        raise LookupError("This call needs the Kubernetes API: it works only inside of a running operator.") from None
