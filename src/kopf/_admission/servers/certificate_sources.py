"""
Sources of identities: files that are renewed by somebody else, and certificates that are made by the server itself.
"""

from __future__ import annotations

import datetime
import functools
import pathlib
from collections.abc import Callable, Collection

from kopf._admission.servers.identities import Identity
from kopf._admission.servers.rotation import Certificate, Issue, Rotation, advance
from kopf._admission.servers.tls_contexts import Path

_NEEDED = (
    "Self-signed certificates of webhook servers need the library 'cryptography': "
    "run `pip install cryptography` or `pip install 'kopf[dev]'`. "
    "Or make a certificate by other means, and use it with certfile= & pkeyfile= of the server. "
    "Or use insecure=True for HTTP instead of HTTPS, which Kubernetes does not support."
)


class MissingDependencyError(Exception):
    """A library is needed that is not a dependency of the framework itself; the text tells how to get it."""


class CertificateFiles:
    """The certificate and the key from files, always as they are now."""

    def __init__(self, certfile: Path, pkeyfile: Path | None = None) -> None:
        self._certfile = certfile
        self._pkeyfile = pkeyfile

    async def get(self) -> Identity:
        """Read the files. Without a file of the key, the key is in the same file as the certificate."""
        certificate = read_file(self._certfile)
        return Identity(certificate, key=b"" if self._pkeyfile is None else read_file(self._pkeyfile))

    def get_deadline(self) -> datetime.datetime | None:
        """Nobody knows."""
        return None


class GeneratedCertificates:
    """Self-signed certificates, kept in memory, renewed long before they expire."""

    def __init__(self, names: Collection[str], *, lifetime: datetime.timedelta, password: str | None = None) -> None:
        self._issuer = Issuer(names, lifetime=lifetime, password=password)
        self._rotation: Rotation | None = None

    async def get(self) -> Identity:
        """Make certificates if it is time for them. Raises :class:`MissingDependencyError` if it cannot be done."""
        now = datetime.datetime.now(datetime.UTC)
        self._rotation = advance(self._rotation, self._issuer.names, now, self._issuer.issue)
        return self._rotation.identity

    def get_deadline(self) -> datetime.datetime | None:
        """Tell when the next step of the rotation is."""
        return self._rotation.changes_at if self._rotation is not None else None


class Issuer:
    """Makes & reads certificates for the names. Raises :class:`MissingDependencyError` if there is no library."""

    issue: Issue
    read: Callable[[bytes, bytes], Certificate]

    def __init__(self, names: Collection[str], *, lifetime: datetime.timedelta, password: str | None = None) -> None:
        try:
            from kopf._admission.servers import certificates  # heavy, and not needed in most of operators
        except ImportError as e:
            raise MissingDependencyError(_NEEDED) from e
        self.names = certificates.normalize(names)
        self.issue = functools.partial(certificates.issue, lifetime=lifetime, password=password)
        self.read = certificates.read


def read_file(path: Path) -> bytes:
    """Read a small file."""
    return pathlib.Path(path).read_bytes()
