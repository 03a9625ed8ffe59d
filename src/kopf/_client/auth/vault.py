"""
The vault: keeps the credentials that work, and gets new ones when none are left.

Requests take connections from the vault, and report the connections that the server has refused. When none are left,
requests wait until the authenticator (a task of the operator) logs in again and populates the vault.

Guarantees:

* Only the refused connection is invalidated. Others, including its replacements, stay.
* A session is never closed while it has requests in flight, and is always closed after the last one.
* Refused credentials are not accepted again, unless the authenticator insists (after a pause, and not forever). So, a
  login that brings nothing new gets :class:`LoginError` with the reason, and there are no endless loops of logins.
* Files with tokens and certificates are read again when they are old or refused. If the certificates have changed, new
  requests get a new connection, and the old one stays until its last request ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import random
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from kopf._client.auth.credentials import ConnectionInfo, Credentials, LoginError, redact_url
from kopf._client.errors import APIUnauthorizedError
from kopf._client.http.connections import Connection, Identity
from kopf._settings.settings import OperatorSettings

logger = logging.getLogger(__name__)

_MAX_REFUSED = 100
"""The number of refused credentials to remember: short-lived tokens would pile up over months."""

_EARLY_TIMEOUT = 10.0
"""
How long requests wait before the first login of the operator, in seconds. Requests of background tasks get it in time,
but requests of startup handlers never would: the login waits for them.
"""

_end_of_login: ContextVar[asyncio.Event | None] = ContextVar("end_of_login", default=None)
"""The end of the login that has called this code. It outlasts the login in the tasks that login handlers start."""


@contextlib.contextmanager
def logging_in() -> Iterator[None]:
    """Refuse the requests of login handlers that need new credentials: they would wait for their own login."""
    ended = asyncio.Event()
    token = _end_of_login.set(ended)
    try:
        yield
    finally:
        ended.set()
        _end_of_login.reset(token)


class Vault:
    """
    The credentials of one operator, or of several operators in one event loop that share them.

    Requests use :meth:`acquire`, :meth:`release`, :meth:`invalidate`. The authenticator calls
    :meth:`wait_until_depleted`, then :meth:`populate` or :meth:`fail`, again and again.

    Large because it has two sides: the login replaces the credentials that requests report as refused. Both change the
    same lists of connections, and must never see them half-changed.
    """

    def __init__(self, settings: OperatorSettings, *, authenticators: int = 1) -> None:
        self._settings = settings
        self.authenticators = authenticators
        """The number of tasks that log in on demand. Without any, requests do not wait for credentials for long."""
        self._connections: list[Connection] = []
        self._best: list[Connection] = []
        self._next_deadline: float | None = None
        self._refused: dict[Identity, None] = {}
        self._last_error: Exception | None = None
        self._retired: set[Connection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        self._depleted = asyncio.Event()
        self._closed = False
        self.losses = 0
        """The number of connections that had worked, and then expired or were refused."""

    @property
    def is_populated(self) -> bool:
        """Whether there are usable credentials now."""
        return self._pick() is not None

    async def acquire(self) -> Connection:
        """
        Take a random connection among those with the highest priority. Release it afterwards.

        If there is none, wait for the next login. Raises :class:`LoginError` if that brings nothing usable, or if
        there is no login: before the operator logs in for the first time, and when it has stopped.
        """
        while True:
            connection = self._pick()
            if connection is not None:
                connection.users += 1
                return connection
            await self._wait_for_login()

    def release(self, connection: Connection) -> None:
        """Give a connection back."""
        connection.users -= 1
        if connection.retired and not connection.users and not connection.session.closed:
            self._close_soon(connection)

    def invalidate(self, connection: Connection, error: Exception) -> None:
        """Exclude a connection with refused credentials. It is closed when all its requests have ended."""
        if not connection.retired:
            self._refused[connection.identity] = None
            while len(self._refused) > _MAX_REFUSED:
                del self._refused[next(iter(self._refused))]
            self._last_error = error
            self._retire(connection)

    def renew(self, connection: Connection) -> bool:
        """Read the files of the credentials again. Return whether anything is new, so that a retry makes sense."""
        if connection.retired:
            return True
        is_renewed = connection.reload_token()
        if not connection.check_certificates():
            return is_renewed
        try:
            replacement = Connection(connection.credentials, self._settings.networking)
        except (OSError, ValueError) as exc:  # files are being replaced: e.g. the key does not match the certificate
            logger.debug("The renewed certificates cannot be used yet: %s", exc)
            return is_renewed
        if replacement.identity in self._refused:
            self._discard(replacement)
            return is_renewed
        self._connections.append(replacement)
        self._retire(connection)
        return True

    def populate(self, credentials: Iterable[Credentials], *, again: bool = False) -> None:
        """
        Add the credentials from a login; ``again`` permits refused ones. Raises :class:`LoginError` if nothing is
        usable; then, waiting requests keep waiting for the next login or :meth:`fail`.
        """
        if self._closed:
            return
        known = {connection.identity for connection in self._connections}
        for item in credentials:
            try:
                connection = Connection(item, self._settings.networking)
            except (OSError, ValueError) as exc:
                logger.warning("The credentials for %s cannot be used: %s", redact_url(item.server), exc)
                self._last_error = exc
                continue
            if again and isinstance(item, ConnectionInfo):  # refused sessions are closed
                self._refused.pop(connection.identity, None)
            if connection.identity in known or connection.identity in self._refused:
                self._discard(connection)
            else:
                known.add(connection.identity)
                self._connections.append(connection)
        self._rank()
        if self._pick() is None:
            raise self._explain()
        self._wake_up(None)

    def fail(self, error: LoginError) -> None:
        """Fail all waiting requests: the login has failed."""
        self._wake_up(error)

    async def wait_until_depleted(self) -> None:
        """Wait until a request needs credentials and there are none."""
        await self._depleted.wait()

    async def close(self) -> None:
        """Close all sessions, even those in use, and fail waiting requests. The vault is unusable afterwards."""
        self._closed = True
        self._wake_up(LoginError("The connections to the API are closed, as the operator has ended."))
        for connection in [*self._connections, *self._retired]:
            connection.retired = True
            self._close_soon(connection)
        self._connections.clear()
        self._rank()
        await asyncio.gather(*self._closing)

    def _pick(self) -> Connection | None:
        if self._next_deadline is not None and asyncio.get_running_loop().time() >= self._next_deadline:
            self._drop_expired()
        best = self._best
        while best:
            connection = best[0] if len(best) == 1 else random.choice(best)
            if not connection.session.closed:
                if not connection.is_due():
                    return connection
                self.renew(connection)
                best = self._best
                continue
            # Login handlers can close the sessions that they have made.
            self.invalidate(connection, LoginError(f"The session for {connection.credentials.server} is closed."))
            best = self._best
        return None

    def _rank(self) -> None:
        """Select the best connections in advance: they change rarely, and every request uses them."""
        highest = max((connection.credentials.priority for connection in self._connections), default=0)
        self._best = [item for item in self._connections if item.credentials.priority == highest]
        deadlines = [item.deadline for item in self._connections if item.deadline is not None]
        self._next_deadline = min(deadlines, default=None)

    def _drop_expired(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in [*self._connections]:
            if connection.deadline is not None and now >= connection.deadline:
                self._last_error = LoginError(
                    f"The credentials have expired at {connection.credentials.expiration}, and it is "
                    f"{datetime.datetime.now(datetime.UTC)} by the local clock."
                )
                self._retire(connection)

    def _retire(self, connection: Connection) -> None:
        connection.retired = True
        self.losses += connection.has_worked
        self._connections.remove(connection)
        self._retired.add(connection)
        self._rank()
        if connection.users:
            connection.session.retire()
        else:
            self._close_soon(connection)

    def _discard(self, connection: Connection) -> None:
        """Close a connection that was never used, except for a ready-made session: a known connection has it, too."""
        if isinstance(connection.credentials, ConnectionInfo):
            self._close_soon(connection)

    def _close_soon(self, connection: Connection) -> None:
        self._retired.discard(connection)
        task = asyncio.get_running_loop().create_task(connection.session.close(), name="closing of a session")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _wait_for_login(self) -> None:
        if self._closed:
            raise LoginError("The connections to the API are closed, as the operator has ended.")
        if not self.authenticators and self._last_error is not None:
            raise self._explain()
        ended = _end_of_login.get()
        if ended is not None and not ended.is_set():
            raise LoginError(
                "Login handlers cannot make requests as the operator, e.g. by kopf.apply(): these need the credentials "
                "that the login is to bring. Make them by a client of your own, or in handlers of objects."
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        self._depleted.set()
        try:
            async with asyncio.timeout(None if self.authenticators else _EARLY_TIMEOUT):
                await waiter
        except TimeoutError:
            raise LoginError("There was no login so far: the operator logs in after its startup handlers.") from None
        finally:
            self._waiters.discard(waiter)

    def _wake_up(self, error: LoginError | None) -> None:
        self._depleted.clear()
        for waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:  # a copy for each, as a raised exception remembers its place
                copy = LoginError(*error.args)
                copy.__cause__ = error.__cause__
                waiter.set_exception(copy)

    def _explain(self) -> LoginError:
        if self._last_error is None:
            return LoginError(
                "Cannot log in: no credentials are found. Make a kubeconfig available (via KUBECONFIG or "
                "in ~/.kube/config), run in a pod with a service account, or add a @kopf.on.login() handler."
            )
        advice = ""
        if isinstance(self._last_error, APIUnauthorizedError):
            advice = ". Renew the credentials, e.g. the token in the kubeconfig; check that they are of this cluster."
        error = LoginError(
            f"Ran out of valid credentials: the login has brought nothing new. The reason: {self._last_error}{advice}"
        )
        error.__cause__ = self._last_error
        return error
