"""
Identities: by what a server proves who it is, and what its clients must trust for that.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a server uses at some moment. All is in PEM."""

    certificate: bytes
    """The certificate of the server, with the intermediate ones if there are any."""
    key: bytes = dataclasses.field(repr=False)
    bundle: bytes | None = None
    """What the clients are to trust; ``None`` for what they trust anyway."""


class IdentitySource(Protocol):
    """Where the identity comes from: it is asked in the beginning, and from time to time later."""

    async def get(self) -> Identity:
        """Give the identity for now. Raises an error if there is none."""

    def get_deadline(self) -> datetime.datetime | None:
        """Tell when it must be asked again at the latest; ``None`` for any time."""


class CertificateReads:
    """How often the servers of this process have read their certificates, and could not; the metrics show it."""

    def __init__(self) -> None:
        self.total = 0
        self.errors = 0


READS = CertificateReads()


def join_pems(*pems: bytes | None) -> bytes:
    """Join PEM blocks, each one once."""
    unique = dict.fromkeys(pem.strip() + b"\n" for pem in pems if pem is not None and pem.strip())
    return b"".join(unique)
