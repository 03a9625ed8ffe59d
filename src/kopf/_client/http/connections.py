"""
A connection: an HTTP session for one set of credentials, with its TLS settings and headers ready.

Everything is computed in advance: a request only takes the session and adds its path.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
import os
import sys

from kopf._client.auth.credentials import ConnectionInfo, Credentials, make_http_headers, redact_url
from kopf._client.http.direct_session import DirectSession
from kopf._client.http.server_address import parse_server
from kopf._client.http.transport import Session
from kopf._settings.settings import NetworkingSettings
from kopf._values.version import __version__

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 60.0
"""
The pause before the files with tokens and certificates are read again, in seconds. The kubelet renews tokens minutes
before they expire.
"""

USER_AGENT = f"kopf/{__version__}"
"""The name of the framework for API servers, e.g. for their audit logs."""

_CLIENTS = ("direct", "aiohttp")

Identity = tuple[Credentials, str | None, bytes | None]


class Connection:
    """
    An HTTP session for specific credentials. Its requests are counted, so that it is closed only when it is unused.

    Create it inside of an event loop. Raises :class:`OSError` or :class:`ValueError` if the certificates, keys, or
    tokens are unusable.

    Large because it computes everything for requests in advance.
    """

    __slots__ = (
        "_certificates",
        "_check_at",
        "_loop",
        "credentials",
        "deadline",
        "has_worked",
        "retired",
        "session",
        "token",
        "users",
    )

    def __init__(self, credentials: Credentials, settings: NetworkingSettings) -> None:
        self.credentials = credentials
        self.users = 0
        """The number of current requests."""
        self.retired = False
        """Whether new requests do not get it, and it is closed after the last current one."""
        self.has_worked = False
        """Whether the server has ever accepted these credentials."""
        self._loop = asyncio.get_running_loop()
        self._check_at: float | None = None
        self._certificates: bytes | None = None
        self.token: str | None = None
        """The token in use: files of tokens change."""
        self.session: Session
        """The session that makes the requests."""
        if isinstance(credentials, ConnectionInfo):
            # They are read before they are loaded, so that a replacement in between is noticed.
            self._certificates = credentials.digest_certificates()
            self.token = credentials.read_token()
            self._check_at = self._loop.time() + CHECK_INTERVAL if credentials.has_files else None
            self.session = _open_session(credentials, self.token, settings)
        else:
            from kopf._client.http.aiohttp_session import AiohttpSession

            self.session = AiohttpSession(credentials.aiohttp_session, credentials.server)
        self.deadline = self._get_deadline()
        """The expiration of the credentials, in the time of the event loop; ``None`` if they never expire."""

    def _get_deadline(self) -> float | None:
        expiration = self.credentials.expiration
        if expiration is None:
            return None
        return self._loop.time() + (expiration - datetime.datetime.now(datetime.UTC)).total_seconds()

    @property
    def identity(self) -> Identity:
        """The identity of the credentials, with the contents of their files, which can change."""
        return self.credentials, self.token, self._certificates

    def is_due(self) -> bool:
        """Tell if it is time to check the files for changes."""
        return self._check_at is not None and self._loop.time() >= self._check_at

    def reload_token(self) -> bool:
        """Read the file of the token again. Return whether the token has changed."""
        if not isinstance(self.credentials, ConnectionInfo) or self.credentials.token_path is None:
            return False
        try:
            token = self.credentials.read_token()
        except OSError:
            # The file is being replaced, or is unmounted at the exit: the old token remains the best guess.
            # If the server refuses it, the regular login reports the problem.
            return False
        if not token or token == self.token:
            return False
        try:
            self.session.set_headers(make_http_headers(self.credentials, token))
        except ValueError:
            return False  # the file is being replaced, as above
        self.token = token
        return True

    def check_certificates(self) -> bool:
        """Tell if the files of certificates and keys have changed, so that a new connection is needed."""
        self._check_at = None if self._check_at is None else self._loop.time() + CHECK_INTERVAL
        if not isinstance(self.credentials, ConnectionInfo):
            return False
        try:
            return self._certificates != self.credentials.digest_certificates()
        except OSError:
            return False  # they are being replaced, as above


@functools.lru_cache(maxsize=100)
def _warn_of_insecurity(server: str) -> None:
    """Warn once, not with every login."""
    logger.warning(
        "The certificate of %s is not verified, because `insecure` is set: anyone on the network path can get the "
        "credentials. Use the certificate authority of the cluster instead.",
        redact_url(server),
    )


def _open_session(info: ConnectionInfo, token: str | None, settings: NetworkingSettings) -> Session:
    is_secure = info.server.lower().startswith("https:")
    if is_secure and info.insecure:
        _warn_of_insecurity(info.server)
    context = info.as_ssl_context(strict_x509=settings.strict_x509) if is_secure else None
    headers = {
        "Accept": "application/json",
        # API servers compress only large responses, i.e. listings, whose requests ask for it.
        "Accept-Encoding": "identity",
        "User-Agent": USER_AGENT,
        **make_http_headers(info, token),
    }
    trust_env = info.trust_env or settings.trust_env
    if settings.client not in _CLIENTS:
        raise ValueError(f"settings.networking.client must be one of {', '.join(_CLIENTS)}, not {settings.client!r}.")
    if settings.client == "aiohttp" or info.proxy_url or (trust_env and _is_environment_important()):
        from kopf._client.http.aiohttp_session import open_aiohttp_session

        return open_aiohttp_session(info, headers, context, trust_env=trust_env)
    return DirectSession(parse_server(info.server), headers, context, info.tls_server_name)


def _is_environment_important() -> bool:
    """Tell if the environment or the settings of the system can contain proxies or their passwords."""
    if sys.platform in ("darwin", "win32"):
        return True
    names = [name.lower() for name, value in os.environ.items() if value]
    has_variables = any(name == "netrc" or (name.endswith("_proxy") and name != "no_proxy") for name in names)
    return has_variables or os.path.exists(os.path.expanduser("~/.netrc"))
