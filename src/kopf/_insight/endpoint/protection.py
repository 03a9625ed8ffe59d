"""
Protection: the decisions about access to the console.

Without a token, the console is for programs of the same machine: it is served on the loopback only, and refuses the
pages of other sites in browsers. With a token, it is for all clients that have the token: as a bearer token or, in
browsers, as a cookie, which is exchanged for the token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence

from kopf._serving.endpoints import READING, Endpoint, parse_endpoint
from kopf._values.operator_error import OperatorError
from kopf._values.records import FrozenRecord

MIN_TOKEN = 16
"""The minimal length of tokens, in characters: shorter ones can be guessed."""

TOKEN_VARIABLE = "KOPF_CONSOLE_TOKEN"
"""The environment variable of the token, so that no command line contains it."""

_TOKEN = re.compile(r"[!-~]+")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/?#@\[\]\s]+))(?::([0-9]{1,5}))?")
_OWN_SITES = frozenset({"same-origin", "none"})  # "none" is for actions of users, e.g. bookmarks

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of all responses. None of them lets other sites read the responses."""


class ConsoleError(OperatorError):
    """The console cannot be served as it is configured."""


class Inquiry(FrozenRecord, frozen=True, kw_only=True):
    """The parts of a request that tell about its client."""

    method: str
    hosts: Sequence[str]
    """All ``Host`` headers; there must be exactly one."""
    authorization: str | None = None
    cookies: Sequence[str] = ()
    query_token: str | None = None
    """The token in the URL: browsers have no other way to send it."""
    origin: str | None = None
    site: str | None = None
    """The relation to the page that made the request, from the ``Sec-Fetch-Site`` header of browsers."""
    is_navigation: bool = False
    """Whether a browser opens the address, so that no page reads the response."""
    content_type: str | None = None


class Refusal(FrozenRecord, frozen=True):
    """The reason why a request is refused, with the status of HTTP."""

    status: int
    text: str


class Protection:
    """The rules of one endpoint."""

    def __init__(self, endpoint: Endpoint, token: str | None) -> None:
        self._endpoint = endpoint
        self._token = token

    def find_refusal(self, inquiry: Inquiry, methods: frozenset[str] = READING) -> Refusal | None:
        """Return the reason to refuse the request, if any; ``methods`` are the accepted ones."""
        host = parse_host(inquiry.hosts[0]) if len(inquiry.hosts) == 1 else None
        if host is None:
            return Refusal(400, "One valid Host header is needed.")
        if not self._is_known(host):
            return Refusal(403, "The console is not served under this name.")
        if inquiry.method not in methods:
            return Refusal(405, "The console is read-only here." if methods <= READING else "Wrong method.")
        if not self.is_authorized(inquiry):
            return Refusal(401, "A token is needed: as `Authorization: Bearer …`, or once as `?token=…` in a browser.")
        is_reading = inquiry.method in READING
        if inquiry.site not in (None, *_OWN_SITES) and not (is_reading and inquiry.is_navigation):
            return Refusal(403, "The console is not for the pages of other sites.")
        if not is_reading:
            return self._find_refusal_of_change(inquiry)
        return None

    def _find_refusal_of_change(self, inquiry: Inquiry) -> Refusal | None:
        """Check the origin and the type: browsers send simple forms of any page without asking, but with an origin."""
        if inquiry.origin is not None and inquiry.origin != f"http://{inquiry.hosts[0]}":
            return Refusal(403, "The console is not for the pages of other sites.")
        if (inquiry.content_type or "").split(";")[0].strip().lower() != "application/json":
            return Refusal(415, "Only JSON is accepted.")
        return None

    def is_authorized(self, inquiry: Inquiry) -> bool:
        """Tell if the token is right, or none is needed."""
        if self._token is None:
            return True
        scheme, _, credentials = (inquiry.authorization or "").partition(" ")
        if scheme.lower() == "bearer" and _is_same(credentials.strip(), self._token):
            return True
        name, expected = self._get_cookie(inquiry), self._make_session()
        return any(_is_same(value, expected) for value in _list_cookies(inquiry.cookies, name))

    def exchange(self, inquiry: Inquiry) -> str | None:
        """Make the cookie for the token in the URL; return ``None`` if the token is wrong or not needed."""
        token = inquiry.query_token
        if token is None or self._token is None or not _is_same(token, self._token):
            return None
        return f"{self._get_cookie(inquiry)}={self._make_session()}; Path=/; HttpOnly; SameSite=Strict"

    def _is_known(self, host: tuple[str, int | None]) -> bool:
        """
        Tell if the host name can be ours: the DNS of a hostile site can lead other names here (DNS rebinding).

        With a token, such an attack gains nothing, and the names of services and proxies are unknown here.
        """
        return self._token is not None or is_loopback(host[0]) or host[0] == (self._endpoint.host or "").lower()

    def _get_cookie(self, inquiry: Inquiry) -> str:
        """Name the cookie by the port: browsers share cookies among all ports of a host."""
        host = parse_host(inquiry.hosts[0]) if len(inquiry.hosts) == 1 else None
        return f"kopf-console-{80 if host is None or host[1] is None else host[1]}"

    def _make_session(self) -> str:
        """Make the value of the cookie: it does not disclose the token."""
        return hmac.new((self._token or "").encode(), b"kopf-console", hashlib.sha256).hexdigest()


def protect(url: str, token: str | None) -> tuple[Endpoint, Protection]:
    """
    Make the endpoint and the protection of a console.

    Raises :class:`ValueError` if the URL is malformed, and :class:`ConsoleError` if the console would be open to all.
    """
    endpoint = parse_endpoint(url, title="console", path="")
    if endpoint.path != "/":
        raise ValueError(f"The console endpoint {url!r} must have no path, for example: http://127.0.0.1:8090")
    if token is not None and (len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token)):
        raise ConsoleError(
            f"The token of the console must have {MIN_TOKEN} or more visible ASCII characters, with no spaces. "
            f"For example, from: openssl rand -hex 16"
        )
    if token is None and not is_loopback(endpoint.host or ""):
        raise ConsoleError(
            f"The console at {endpoint} would be open to everybody who can reach it. Set {TOKEN_VARIABLE} (or "
            f"settings.console.token), or serve it on the loopback only: http://127.0.0.1:{endpoint.port}"
        )
    return endpoint, Protection(endpoint, token)


def is_loopback(host: str) -> bool:
    """Tell if the name or the address is of the loopback."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_host(header: str) -> tuple[str, int | None] | None:
    """Split the ``Host`` header to the name and the port; return ``None`` if it is malformed."""
    found = _HOST.fullmatch(header.strip())
    if found is None:
        return None
    return (found[1] or found[2]).lower(), None if found[3] is None else int(found[3])


def _is_same(one: str, another: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), another.encode())


def _list_cookies(headers: Sequence[str], name: str) -> list[str]:
    """Find the values of the cookie. Other cookies of the host can be malformed, so they are not parsed."""
    pairs = (pair.partition("=") for header in headers for pair in header.split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]
