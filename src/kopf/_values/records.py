"""
Records: small values that are made for every object and every call, so they have to be cheap to make.

Their classes are cheap, too: a data class takes 7 KiB more memory. Data classes are for what users make and extend.
"""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct):
    """The base of records: as a dataclass with slots, but made several times faster (by code in C)."""


class FrozenRecord(msgspec.Struct, frozen=True):
    """The same for those that are not to be changed once they are made; the descendants repeat ``frozen=True``."""


replace = msgspec.structs.replace
"""Make another record with some fields changed."""

force_setattr = msgspec.structs.force_setattr
"""Set a field of a frozen record, while it is being made: in its ``__post_init__``."""

field = msgspec.field
"""Describe a field whose default is made anew for each record: ``field(default_factory=list)``."""
