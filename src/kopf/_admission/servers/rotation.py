"""
Rotation: one certificate replaces another one, and the clients trust the server at every moment.

The clients learn of the next certificate long before the server uses it, and trust the previous one long afterwards.
This module only decides what is due; others do it.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence

from kopf._admission.servers.identities import Identity, join_pems

CLOCK_SKEW = datetime.timedelta(hours=1)
"""The largest lag of the clients' clocks: certificates are backdated by this time."""

LIFETIME = datetime.timedelta(days=365)
"""The validity of certificates. It is long, as not everything that trusts them follows the renewals."""

_MAX_ANNOUNCEMENT = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its private key, both in PEM, with the facts from the certificate."""

    certificate: bytes
    key: bytes = dataclasses.field(repr=False)
    names: tuple[str, ...]
    issued_at: datetime.datetime
    expires_at: datetime.datetime

    @property
    def renewed_at(self) -> datetime.datetime:
        """The time to make the next certificate: a third of the lifetime is left."""
        return self.expires_at - (self.expires_at - self.issued_at) / 3

    @property
    def used_at(self) -> datetime.datetime:
        """The time to begin to use it, if it was announced as soon as it was made."""
        return self.issued_at + min((self.expires_at - self.issued_at) / 6, _MAX_ANNOUNCEMENT)


Issue = Callable[[Sequence[str]], Certificate]
"""A function that makes a certificate for the names."""


@dataclasses.dataclass(frozen=True)
class Rotation:
    """The current certificate, its successor (if made already), and its predecessor (if it can still be in use)."""

    current: Certificate
    next: Certificate | None = None
    previous: bytes | None = None

    @property
    def identity(self) -> Identity:
        """The identity of the server, with everything that the clients must trust."""
        following = self.next.certificate if self.next is not None else None
        bundle = join_pems(self.previous, self.current.certificate, following)
        return Identity(self.current.certificate, self.current.key, bundle, self.changes_at)

    @property
    def changes_at(self) -> datetime.datetime:
        """The time when :func:`advance` has something to do."""
        return self.current.renewed_at if self.next is None else min(self.next.used_at, self.current.expires_at)


def advance(rotation: Rotation | None, names: Sequence[str], now: datetime.datetime, issue: Issue) -> Rotation:
    """
    Take the next step if it is due; otherwise, return the same object.

    The certificate must have at least these names. It keeps its other names, because others, e.g. another version of
    the same operator, can need them.
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
        return Rotation(current, next=issue(united))  # by now, nobody uses the previous one
    return rotation
