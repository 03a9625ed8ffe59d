"""
Reachability: whether the server responds at all, and what to do if it does not.

If it does not respond, the logs say so once for all requests and streams.

Each request has its own attempts and delays, and would log the same again and again. So, an outage is logged when it
begins, then once a minute with the number of failures, and when it ends. The messages of single requests are only for
debugging.

OpenSSL says what is wrong with a certificate, but not how to fix it. Proxies and portals on the way answer with HTML
pages for people, e.g. with a login form. The errors quote pages that have an error status; this module recognises
pages that pretend to be a success.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl

from kopf._client.auth.credentials import redact
from kopf._client.errors import shorten
from kopf._client.http.transport import Response, TransportError, UnreachableError

logger = logging.getLogger(__name__)

REMINDER_INTERVAL = 60.0
"""The pause between reminders of an outage, in seconds."""

BREAKS_INTERVAL = 5.0
"""The time after a broken stream when others are not mentioned, in seconds: they break together."""

_UNREACHABLE = (UnreachableError, TimeoutError)

_CERTIFICATE_HINTS = (
    (  # by the letter of RFC 5280 (``X509_V_FLAG_X509_STRICT``)
        range(80, 94),
        "The certificates of the cluster do not follow RFC 5280 to the letter, as Python 3.13 and newer demand. "
        "Renew them, or accept them as they are: settings.networking.strict_x509 = False.",
    ),
    (
        (2, 18, 19, 20, 21),
        "The certificate of the server is not signed by the authority that the credentials trust: check "
        "certificate-authority in the kubeconfig (or ca_path & ca_data of the login handler).",
    ),
    ((9, 10), "The certificate of the server is not valid at this time: renew it, or check the clock."),
    (
        (62, 64),
        "The certificate of the server is for other names: check the address, or set tls-server-name in the "
        "kubeconfig (or tls_server_name of the login handler).",
    ),
)
"""Advice by the codes of failed verifications: see "X509_STORE_CTX_get_error" of the OpenSSL documentation."""


@dataclasses.dataclass
class _Outage:
    since: float
    said: float
    failures: int = 0


class Reachability:
    """The outages of the servers of one operator; as a rule, there is one server."""

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}
        self._broken_at: float | None = None

    def note_failure(self, server: str, cause: Exception, error: Exception) -> bool:
        """Note a request without a response, as both errors say. Return whether the logs tell of it already."""
        now = asyncio.get_running_loop().time()
        outage = self._outages.get(server)
        if outage is None and not isinstance(cause, _UNREACHABLE):
            return False
        if outage is None:
            outage = self._outages[server] = _Outage(since=now, said=now)
            text = "The server %s is unreachable, and Kopf keeps trying: %s"
            logger.warning(text, redact(server), error)
        outage.failures += 1
        if now - outage.said >= REMINDER_INTERVAL:
            outage.said = now
            logger.warning(
                "The server %s has been unreachable for %s; %d requests have failed. The last error: %s",
                redact(server),
                _format_duration(now - outage.since),
                outage.failures,
                error,
            )
        return True

    def note_break(self, server: str) -> bool:
        """Note a broken stream. Return whether it is one of many."""
        now = asyncio.get_running_loop().time()
        is_one_of_many = self._broken_at is not None and now - self._broken_at < BREAKS_INTERVAL
        self._broken_at = now
        return is_one_of_many or server in self._outages

    def note_response(self, server: str) -> None:
        """Note that the server has responded in any way."""
        if self._outages and (outage := self._outages.pop(server, None)) is not None:
            duration = _format_duration(asyncio.get_running_loop().time() - outage.since)
            logger.info(
                "The server %s is reachable again after %s; %d requests have failed.",
                redact(server),
                duration,
                outage.failures,
            )


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def find_tls_error(exc: BaseException) -> ssl.SSLError | None:
    """Find the TLS error among the causes of the error; ``None`` if it has nothing to do with TLS."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not hasattr(cause, "certificate_error"):
            return cause
        cause = getattr(cause, "certificate_error", None) or cause.__cause__
    return None


def _get_tls_hint(exc: BaseException) -> str | None:
    """Advise on a failed TLS handshake; ``None`` if it is not about the certificate of the server."""
    code = getattr(find_tls_error(exc), "verify_code", None)
    return next((hint for codes, hint in _CERTIFICATE_HINTS if code in codes), None)


def is_page(response: Response) -> bool:
    """Tell if the response is an HTML page with a success status: API servers never send such pages."""
    return response.status < 300 and response.headers.get("Content-Type", "").lower().startswith("text/html")


def describe_page(body: bytes) -> str:
    """Describe the page that came instead of a Kubernetes response."""
    return f"The response is not from Kubernetes, but an HTML page for people: {shorten(body)}"


def describe_failure(method: str, server: str, target: str, exc: Exception) -> str:
    """Say which request got no response, why, and what to do about it."""
    reason = str(exc) or ("no response in time" if isinstance(exc, TimeoutError) else type(exc).__name__)
    path = target.partition("?")[0]
    hint = _get_tls_hint(exc) or (exc.hint if isinstance(exc, TransportError) else None)
    return redact(f"{method} {server.rstrip('/')}{path}: {reason}{'. ' + hint if hint else ''}")
