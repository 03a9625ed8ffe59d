"""
What is said of requests that have failed, and what to do about it.

OpenSSL says what is wrong with a certificate, but not how to help it. Proxies and portals on the way answer with pages
for people, e.g. where one has to log in first: those with the status of an error are shown by the errors, and those
that pretend to be a success are recognised here.
"""

from __future__ import annotations

import ssl

from kopf._client.auth.credentials import redact
from kopf._client.errors import shorten
from kopf._client.http.transport import Response, TransportError

_STRICT_CODES = range(80, 94)
"""
Checks by the letter of RFC 5280 (``X509_V_FLAG_X509_STRICT``), which Python does since 3.13. All codes are those of
"X509_STORE_CTX_get_error" of the OpenSSL documentation.
"""

_EXPIRED_CODES = (9, 10)
_UNKNOWN_AUTHORITY_CODES = (2, 18, 19, 20, 21)
_MISMATCH_CODES = (62, 64)


def find_tls_error(exc: BaseException) -> ssl.SSLError | None:
    """Find the error of TLS among the causes of the error; ``None`` if it is not about TLS."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not hasattr(cause, "certificate_error"):
            return cause
        cause = getattr(cause, "certificate_error", None) or cause.__cause__
    return None


def _get_tls_hint(exc: BaseException) -> str | None:
    """Get what to do about the failed TLS handshake; ``None`` if it is not about the certificate of the server."""
    code = getattr(find_tls_error(exc), "verify_code", None)
    if code in _STRICT_CODES:
        return (
            "The certificates of the cluster do not follow RFC 5280 to the letter, as Python 3.13 and newer demand. "
            "Renew them, or accept them as they are: settings.networking.strict_x509 = False."
        )
    if code in _UNKNOWN_AUTHORITY_CODES:
        return (
            "The certificate of the server is not signed by the authority that the credentials trust: check "
            "certificate-authority in the kubeconfig (or ca_path & ca_data of the login handler)."
        )
    if code in _EXPIRED_CODES:
        return "The certificate of the server is not valid at this time: renew it, or check the clock."
    if code in _MISMATCH_CODES:
        return (
            "The certificate of the server is for other names: check the address, or set tls-server-name in the "
            "kubeconfig (or tls_server_name of the login handler)."
        )
    return None


def is_page(response: Response) -> bool:
    """Tell if it is a page with the status of a success: API servers have none."""
    return response.status < 300 and response.headers.get("Content-Type", "").lower().startswith("text/html")


def describe_page(body: bytes) -> str:
    """Say what has come."""
    return f"The answer is not of Kubernetes, but a page for people (text/html): {shorten(body)}"


def describe_failure(method: str, server: str, target: str, exc: Exception) -> str:
    """Say which request has got no response, why, and what to do about it."""
    reason = str(exc) or ("no response in time" if isinstance(exc, TimeoutError) else type(exc).__name__)
    path = target.partition("?")[0]
    hint = _get_tls_hint(exc) or (exc.hint if isinstance(exc, TransportError) else None)
    return redact(f"{method} {server.rstrip('/')}{path}: {reason}{'. ' + hint if hint else ''}")
