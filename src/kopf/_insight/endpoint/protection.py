"""
Protection: who may look at the operator. Nothing is served here, it is only decided.

Without a token, the console is for the programs of the same machine: it can be bound to the loopback only, and browsers
are not let in for the pages of others. With a token, whoever knows it may look, as a bearer token or, in browsers,
by a cookie that it is exchanged for.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence

from kopf._serving.endpoints import Endpoint, parse_endpoint
from kopf._values.operator_error import OperatorError
from kopf._values.records import FrozenRecord

MIN_TOKEN = 16
"""Shorter tokens can be guessed, in characters."""

TOKEN_VARIABLE = "KOPF_CONSOLE_TOKEN"
"""The environment variable with the token, so that it is in no command line."""

READING = frozenset({"GET", "HEAD"})

_TOKEN = re.compile(r"[!-~]+")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/?#@\[\]\s]+))(?::([0-9]{1,5}))?")
_OWN_SITES = frozenset({"same-origin", "none"})  # "none" is for what users do by themselves, e.g. with bookmarks

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
"""What all answers have; there are no headers that would let other sites read them."""


class ConsoleError(OperatorError):
    """The console cannot be served as it is configured."""


class Inquiry(FrozenRecord, frozen=True, kw_only=True):
    """What a request says of those who ask."""

    method: str
    hosts: Sequence[str]
    """All headers of that name; there is to be one."""
    authorization: str | None = None
    cookies: Sequence[str] = ()
    query_token: str | None = None
    """The token in the URL: browsers have no other way to bring it."""
    origin: str | None = None
    site: str | None = None
    """Whose page it is from, as browsers say by ``Sec-Fetch-Site``."""
    is_navigation: bool = False
    """Whether a browser goes there, and no page reads the answer."""
    content_type: str | None = None


class Refusal(FrozenRecord, frozen=True):
    """Why somebody may not look."""

    status: int
    text: str


class Protection:
    """The rules of one endpoint."""

    def __init__(self, endpoint: Endpoint, token: str | None) -> None:
        self._endpoint = endpoint
        self._token = token

    def find_refusal(self, inquiry: Inquiry, methods: frozenset[str] = READING) -> Refusal | None:
        """Tell why the request is refused, if it is; ``methods`` are those of what is asked for."""
        host = parse_host(inquiry.hosts[0]) if len(inquiry.hosts) == 1 else None
        if host is None:
            return Refusal(400, "One valid Host header is needed.")
        if not self._is_known(host):
            return Refusal(403, "The console is not served under this name.")
        if inquiry.method not in methods:
            return Refusal(405, "The console is read-only here." if methods <= READING else "It is not for that.")
        if not self.is_authorized(inquiry):
            return Refusal(401, "A token is needed: as `Authorization: Bearer …`, or once as `?token=…` in a browser.")
        is_reading = inquiry.method in READING
        if inquiry.site not in (None, *_OWN_SITES) and not (is_reading and inquiry.is_navigation):
            return Refusal(403, "The console is not for the pages of other sites.")
        if not is_reading:
            return self._find_refusal_of_change(inquiry)
        return None

    def _find_refusal_of_change(self, inquiry: Inquiry) -> Refusal | None:
        """Browsers send simple forms for any page, without asking; they tell of the page, though."""
        if inquiry.origin is not None and inquiry.origin != f"http://{inquiry.hosts[0]}":
            return Refusal(403, "The console is not for the pages of other sites.")
        if (inquiry.content_type or "").split(";")[0].strip().lower() != "application/json":
            return Refusal(415, "Only JSON is accepted.")
        return None

    def is_authorized(self, inquiry: Inquiry) -> bool:
        """Tell if the token is there and right, or none is needed."""
        if self._token is None:
            return True
        scheme, _, credentials = (inquiry.authorization or "").partition(" ")
        if scheme.lower() == "bearer" and _is_same(credentials.strip(), self._token):
            return True
        name, expected = self._get_cookie(inquiry), self._make_session()
        return any(_is_same(value, expected) for value in _list_cookies(inquiry.cookies, name))

    def exchange(self, inquiry: Inquiry) -> str | None:
        """Make the cookie for the token in the URL; ``None`` if it is not the right one, or none is needed."""
        token = inquiry.query_token
        if token is None or self._token is None or not _is_same(token, self._token):
            return None
        return f"{self._get_cookie(inquiry)}={self._make_session()}; Path=/; HttpOnly; SameSite=Strict"

    def _is_known(self, host: tuple[str, int | None]) -> bool:
        """
        Tell if the name can be ours: other names can lead here by the DNS of a hostile site (DNS rebinding).

        With a token, nobody gets anything by that, and the names of services and proxies are not known here.
        """
        return self._token is not None or is_loopback(host[0]) or host[0] == (self._endpoint.host or "").lower()

    def _get_cookie(self, inquiry: Inquiry) -> str:
        """Name the cookie: cookies are the same for all ports of a host, but its consoles are not."""
        host = parse_host(inquiry.hosts[0]) if len(inquiry.hosts) == 1 else None
        return f"kopf-console-{80 if host is None or host[1] is None else host[1]}"

    def _make_session(self) -> str:
        """Whoever steals the cookie, does not know the token."""
        return hmac.new((self._token or "").encode(), b"kopf-console", hashlib.sha256).hexdigest()


def protect(url: str, token: str | None) -> tuple[Endpoint, Protection]:
    """
    Decide where the console is served, and by which rules.

    Raises :class:`ValueError` if the URL makes no sense, and :class:`ConsoleError` if it would be open to everybody.
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
    """Tell if the name or the address is always of the same machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_host(header: str) -> tuple[str, int | None] | None:
    """Split the ``Host`` header to the name and the port; ``None`` if it is malformed."""
    found = _HOST.fullmatch(header.strip())
    if found is None:
        return None
    return (found[1] or found[2]).lower(), None if found[3] is None else int(found[3])


def _is_same(one: str, another: str) -> bool:
    """Compare in a time that does not tell how much of it is right."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), another.encode())


def _list_cookies(headers: Sequence[str], name: str) -> list[str]:
    """Find the values of the cookie; other cookies of the host can be anything, so they are not parsed."""
    pairs = (pair.partition("=") for header in headers for pair in header.split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]
