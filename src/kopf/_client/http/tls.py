"""
What to do about certificates that are not trusted: OpenSSL says what is wrong, but not how to help it.

The codes are those of "X509_STORE_CTX_get_error" of the OpenSSL documentation.
"""

from __future__ import annotations

import ssl

_STRICT_CODES = range(80, 94)
"""Checks by the letter of RFC 5280 (``X509_V_FLAG_X509_STRICT``), which Python does since 3.13."""

_EXPIRED_CODES = (9, 10)
_UNKNOWN_AUTHORITY_CODES = (2, 18, 19, 20, 21)
_MISMATCH_CODES = (62, 64)


def find_error(exc: BaseException) -> ssl.SSLError | None:
    """Find the error of TLS among the causes of the error; ``None`` if it is not about TLS."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not hasattr(cause, "certificate_error"):
            return cause
        cause = getattr(cause, "certificate_error", None) or cause.__cause__
    return None


def get_hint(exc: BaseException) -> str | None:
    """Get what to do about the failed TLS handshake; ``None`` if it is not about the certificate of the server."""
    code = getattr(find_error(exc), "verify_code", None)
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
