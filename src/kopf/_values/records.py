"""
Records: small values for every object and every call, so they are cheap to make.

Their classes are cheap, too: a data class takes 7 KiB more memory. Data classes are for values that users make and
extend.

But setting a field takes several times longer than in other classes. So objects that change all the time are no
records, and code that runs for every object sets a field only if that changes it.
"""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct):
    """The base of records: like a data class with slots, but several times faster to make (by code in C)."""


class FrozenRecord(msgspec.Struct, frozen=True):
    """The base of immutable records. Subclasses must repeat ``frozen=True``."""


replace = msgspec.structs.replace
"""Copy a record with some fields changed."""

force_setattr = msgspec.structs.force_setattr
"""Set a field of a frozen record, only in its ``__post_init__``."""

field = msgspec.field
"""Declare a field with a new default value for each record: ``field(default_factory=list)``."""
