"""
Rotation: how one certificate is replaced by another one so that there is no moment when the clients do not trust it.

The clients learn about the next certificate long before it is used, and are let to trust the previous one long
after it was used. It is only a matter of what is to be done when; doing it is for others.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence

from kopf._admission.servers.identities import Identity, join_pems

CLOCK_SKEW = datetime.timedelta(hours=1)
"""How much the clocks of the clients may be behind: the certificates are backdated by that."""

LIFETIME = datetime.timedelta(days=365)
"""For how long the certificates are valid. It is long, as not everything that trusts them follows the renewals."""

_MAX_ANNOUNCEMENT = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its private key, both in PEM; and what is written in it."""

    certificate: bytes
    key: bytes = dataclasses.field(repr=False)
    names: tuple[str, ...]
    issued_at: datetime.datetime
    expires_at: datetime.datetime

    @property
    def renewed_at(self) -> datetime.datetime:
        """When the next certificate is to be made: when a third of the lifetime is left."""
        return self.expires_at - (self.expires_at - self.issued_at) / 3

    @property
    def used_at(self) -> datetime.datetime:
        """When it can be used, provided that it is announced since it was made."""
        return self.issued_at + min((self.expires_at - self.issued_at) / 6, _MAX_ANNOUNCEMENT)


Issue = Callable[[Sequence[str]], Certificate]
"""Makes a certificate for the names."""


@dataclasses.dataclass(frozen=True)
class Rotation:
    """The certificate in use, its successor if there is already one, and its predecessor if it can be still in use."""

    current: Certificate
    next: Certificate | None = None
    previous: bytes | None = None

    @property
    def identity(self) -> Identity:
        """What to serve with, and what the clients are to trust."""
        following = self.next.certificate if self.next is not None else None
        bundle = join_pems(self.previous, self.current.certificate, following)
        return Identity(certificate=self.current.certificate, key=self.current.key, bundle=bundle)

    @property
    def changes_at(self) -> datetime.datetime:
        """When :func:`advance` is going to make a difference."""
        return self.current.renewed_at if self.next is None else min(self.next.used_at, self.current.expires_at)


def advance(rotation: Rotation | None, names: Sequence[str], now: datetime.datetime, issue: Issue) -> Rotation:
    """
    Do what is due. Give the same object if nothing is.

    The names are those that the certificate must have at least. It keeps the other ones that it has: somebody else,
    e.g. another version of the same operator, can need them.
    """
    if rotation is None:
        return Rotation(issue(names))
    current, following = rotation.current, rotation.next
    united = tuple(dict.fromkeys([*names, *current.names]))
    if following is not None and now >= rotation.changes_at and set(names).issubset(following.names):
        return Rotation(following, previous=current.certificate)
    if now >= current.expires_at or not set(names).issubset(current.names):
        return Rotation(issue(united), previous=current.certificate)
    if following is None and now >= current.renewed_at:
        return Rotation(current, next=issue(united))  # the previous one is not in use anymore, wherever it was
    return rotation
