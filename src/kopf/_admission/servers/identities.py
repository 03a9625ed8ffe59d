"""Identities: the certificate and key of a server, and the certificates that its clients must trust."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Awaitable, Callable


@dataclasses.dataclass(frozen=True)
class Identity:
    """The identity of a server at some moment. All of it is in PEM."""

    certificate: bytes
    """The certificate of the server, followed by the intermediate ones, if there are any."""
    key: bytes = dataclasses.field(repr=False)
    bundle: bytes | None = None
    """The certificates that the clients must trust; ``None`` if they trust the server anyway."""
    deadline: datetime.datetime | None = None
    """The latest time to ask the source again; ``None`` if there is no limit."""


IdentitySource = Callable[[], Awaitable[Identity]]
"""Gives the current identity: at the start, and from time to time later. Raises an error if there is none."""


class CertificateReads:
    """Counts how often the servers of this process have read their certificates, for the metrics."""

    def __init__(self) -> None:
        self.total = 0
        self.errors = 0


READS = CertificateReads()


def join_pems(*pems: bytes | None) -> bytes:
    """Join PEM blocks, each one once."""
    unique = dict.fromkeys(pem.strip() + b"\n" for pem in pems if pem is not None and pem.strip())
    return b"".join(unique)
