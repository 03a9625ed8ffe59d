"""Sources of identities: files that others renew, and certificates that the server makes itself."""

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
    """An optional library is not installed. The text tells how to get it."""


async def read_identity(certfile: Path, pkeyfile: Path | None = None) -> Identity:
    """Read the certificate and the key from files; without ``pkeyfile``, both are in the same file."""
    return Identity(read_file(certfile), key=b"" if pkeyfile is None else read_file(pkeyfile))


class GeneratedCertificates:
    """Self-signed certificates in memory, which are renewed long before they expire."""

    def __init__(self, names: Collection[str], *, lifetime: datetime.timedelta, password: str | None = None) -> None:
        self._issuer = Issuer(names, lifetime=lifetime, password=password)
        self._rotation: Rotation | None = None

    async def get(self) -> Identity:
        """Get the current identity. Make certificates if they are due."""
        now = datetime.datetime.now(datetime.UTC)
        self._rotation = advance(self._rotation, self._issuer.names, now, self._issuer.issue)
        return self._rotation.identity


class Issuer:
    """Makes and reads certificates for the names. Raises :class:`MissingDependencyError` if there is no library."""

    issue: Issue
    read: Callable[[bytes, bytes], Certificate]

    def __init__(self, names: Collection[str], *, lifetime: datetime.timedelta, password: str | None = None) -> None:
        try:
            from kopf._admission.servers import certificates  # heavy, and most operators need none
        except ImportError as e:
            raise MissingDependencyError(_NEEDED) from e
        self.names = certificates.normalize(names)
        self.issue = functools.partial(certificates.issue, lifetime=lifetime, password=password)
        self.read = certificates.read


def read_file(path: Path) -> bytes:
    """Read a small file."""
    return pathlib.Path(path).read_bytes()
