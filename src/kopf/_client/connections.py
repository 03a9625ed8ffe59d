"""
A connection: one set of credentials turned into one HTTP session, with its TLS settings and headers ready.

Everything that can be computed once is computed once: a request only picks the session and appends its path.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import importlib.metadata
import ssl

import aiohttp
import yarl

from kopf._client.credentials import ConnectionInfo, Credentials, make_http_headers

TOKEN_CHECK_INTERVAL = 60.0
"""
How often the files with tokens are read again, in seconds. The kubelet renews tokens minutes before they
expire.
"""

KEEPALIVE_TIMEOUT = 45.0
"""
How long an unused TCP connection is kept, in seconds. API servers and load balancers drop them after 60 or
more.
"""


class Connection:
    """
    An HTTP session of specific credentials; its requests are counted, so that it is closed only when it is
    unused.

    Must be created inside of an event loop. Raises :class:`OSError` or :class:`ValueError` if the
    certificates, keys, or tokens are unusable.
    """

    __slots__ = (
        "_base",
        "_loop",
        "_token_check_at",
        "credentials",
        "deadline",
        "retired",
        "session",
        "token",
        "users",
    )

    def __init__(self, credentials: Credentials, *, trust_env: bool = False) -> None:
        self.credentials = credentials
        self.users = 0
        """How many requests use it right now."""
        self.retired = False
        """Whether it is not given to new requests, and is to be closed after the last of the current ones."""
        self._loop = asyncio.get_running_loop()
        self._base = credentials.server.rstrip("/")
        self._token_check_at: float | None = None
        self.token: str | None = None
        """The token in use: files of tokens change."""
        if isinstance(credentials, ConnectionInfo):
            self.token = credentials.read_token()
            self.session = _create_session(credentials, self.token, trust_env=trust_env)
            if credentials.token_path is not None:
                self._token_check_at = self._loop.time() + TOKEN_CHECK_INTERVAL
        else:
            self.session = credentials.aiohttp_session
        self.deadline = self._get_deadline()
        """When the credentials expire, in the time of the event loop; ``None`` if never."""

    def _get_deadline(self) -> float | None:
        expiration = self.credentials.expiration
        if expiration is None:
            return None
        return self._loop.time() + (expiration - datetime.datetime.now(datetime.UTC)).total_seconds()

    @property
    def identity(self) -> tuple[Credentials, str | None]:
        """What makes the credentials different from others: the same file can have another token."""
        return self.credentials, self.token

    def make_url(self, target: str) -> yarl.URL:
        """Make a full URL of an already quoted path & query."""
        return yarl.URL(self._base + target, encoded=True)

    def keep_token_fresh(self) -> None:
        """Read the file of the token again if it is time for it."""
        if self._token_check_at is not None and self._loop.time() >= self._token_check_at:
            self.reload_token()

    def reload_token(self) -> bool:
        """Read the file of the token again. Tell if the token has changed."""
        if not isinstance(self.credentials, ConnectionInfo) or self.credentials.token_path is None:
            return False
        self._token_check_at = self._loop.time() + TOKEN_CHECK_INTERVAL
        try:
            token = self.credentials.read_token()
        except OSError:
            # Half-way of being replaced, or unmounted on exit: the old token remains the best guess,
            # and if it is not, the server says so, and the regular login reports the problem.
            return False
        if not token or token == self.token:
            return False
        self.token = token
        self.session.headers.update(make_http_headers(self.credentials, token))
        return True

    async def close(self) -> None:
        """Close all TCP connections."""
        await self.session.close()


def _create_session(info: ConnectionInfo, token: str | None, *, trust_env: bool) -> aiohttp.ClientSession:
    context: ssl.SSLContext | bool = info.as_ssl_context() if info.server.startswith("https:") else True
    headers = {"Accept": "application/json", "User-Agent": get_user_agent(), **make_http_headers(info, token)}
    return aiohttp.ClientSession(
        # Every watch stream occupies one TCP connection: with a limit, they would starve regular requests.
        connector=aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=KEEPALIVE_TIMEOUT),
        headers=headers,
        # API servers compress only what is large, i.e. listings, and those ask for it themselves.
        skip_auto_headers=("Accept-Encoding",),
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=info.proxy_url,
        trust_env=info.trust_env or trust_env,
    )


@functools.cache
def get_user_agent() -> str:
    """Get how the framework introduces itself to the API server, e.g. for its audit log."""
    try:
        return f"kopf/{importlib.metadata.version('kopf')}"
    except importlib.metadata.PackageNotFoundError:  # used from the source tree, not installed
        return "kopf"
