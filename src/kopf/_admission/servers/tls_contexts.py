"""
TLS contexts of the server, made from its identity and the rules for client certificates.

A context that is in use never changes: after a renewal, another context is made.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import ssl

from kopf._admission.servers.identities import Identity
from kopf._client.auth.credentials import exposing
from kopf._serving.limited_logs import RateLimitedLogger

logger = RateLimitedLogger(logging.getLogger(__name__), burst=20)  # any client can begin a handshake

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class ClientVerification:
    """The rules for client certificates, and the trusted authorities; see :class:`ssl.SSLContext`."""

    mode: ssl.VerifyMode | None = None
    """``None``: with authorities, certificates are optional; without authorities, they are not requested."""
    authorities: tuple[str | bytes, ...] = ()
    """The trusted certificates: PEM (texts) or DER (bytes)."""
    directory: Path | None = None
    """A directory with more trusted certificates, in files named by their hashes. It is read on demand."""

    def apply(self, context: ssl.SSLContext) -> None:
        """Configure the context. Raises :class:`ValueError` if the rules make no sense."""
        is_anybody_trusted = bool(self.authorities or self.directory)
        if self.mode == ssl.CERT_REQUIRED and not is_anybody_trusted:
            raise ValueError(
                "Client certificates are required, but there is nothing to verify them with: "
                "add verify_cafile=, verify_capath=, or verify_cadata=."
            )
        try:
            for authority in self.authorities:
                context.load_verify_locations(cadata=authority)
            if self.directory:
                context.load_verify_locations(capath=self.directory)
        except ssl.SSLError as e:
            raise ValueError(f"The certificates to verify the clients with cannot be used: {e}") from e
        if self.mode is not None:
            context.verify_mode = self.mode
        elif is_anybody_trusted:
            context.verify_mode = ssl.CERT_OPTIONAL


class _TellingSSLObject(ssl.SSLObject):
    """
    A connection that logs why its handshake has failed.

    Nothing else logs it, except for the debug mode of asyncio. And the most frequent problem of webhooks is that
    clients do not trust the server: because of the wrong CA bundle or the wrong host name.
    """

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise  # the handshake continues, or the client has left
        except ssl.SSLError as e:
            logger.warning("The TLS handshake of the webhook server with a client has failed: %s", e.reason or e)
            raise


def make_context() -> ssl.SSLContext:
    """Make an empty context of a server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.sslobject_class = _TellingSSLObject
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def load_identity(context: ssl.SSLContext, identity: Identity, *, password: str | None = None) -> None:
    """
    Load the identity into the context. The password is for the private key.

    Raises :class:`ValueError` if the certificate, the key, and the password do not match.
    """
    with exposing(identity.key.strip() + b"\n" + identity.certificate) as path:
        try:
            # Without a password, the callback prevents OpenSSL from asking for it in the terminal.
            context.load_cert_chain(path, password=password or _refuse_to_ask)
        except ssl.SSLError as e:
            raise ValueError(
                "The certificate, the private key, and the password of the webhook server are malformed, "
                f"or do not fit together: {e}"
            ) from e


def check_bundle(bundle: bytes) -> None:
    """Check that the bundle is one or more certificates in PEM. Raises :class:`ValueError` if it is not."""
    try:
        text = bundle.decode("ascii", errors="replace")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as e:
        raise ValueError(f"The CA bundle of the webhook server cannot be used: {e}") from e
    if text.count("-----BEGIN CERTIFICATE") != text.count("-----END CERTIFICATE"):
        raise ValueError("The CA bundle of the webhook server is incomplete.")  # perhaps, it is just being written


def _refuse_to_ask() -> str:
    raise ValueError("The private key of the webhook server is encrypted, but there is no password= for it.")
