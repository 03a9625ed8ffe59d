"""
Descriptions of failed requests, with advice.

OpenSSL says what is wrong with a certificate, but not how to fix it. Proxies and portals on the way answer with HTML
pages for people, e.g. with a login form. The errors quote pages that have an error status; this module recognises
pages that pretend to be a success.
"""

from __future__ import annotations

import ssl

from kopf._client.auth.credentials import redact
from kopf._client.errors import shorten
from kopf._client.http.transport import Response, TransportError

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
