"""
Objects that would take too much memory when decoded: they are reduced to their metadata, or to their identities.

Whoever may create objects, can create such ones: 3 MiB of empty dicts become 80 MiB.
"""

from __future__ import annotations

import msgspec

from kopf._values import codec
from kopf._values.decoded_sizes import find_excess

MAX_OBJECT = 72 * 2**20
"""How much an object may take, in bytes. All that etcd stores by default, which is 1.5 MiB, takes less."""

MIN_LARGE = MAX_OBJECT // 160
"""Shorter ones cannot be too large."""

_MAX_METADATA = MAX_OBJECT // 16


class _Identity(msgspec.Struct, omit_defaults=True):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str = ""
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None


class _Skeleton(msgspec.Struct, omit_defaults=True):
    metadata: msgspec.Raw
    apiVersion: str | None = None
    kind: str | None = None


_decode_skeleton = msgspec.json.Decoder(_Skeleton).decode
_decode_identity = msgspec.json.Decoder(_Identity).decode


class NamelessError(msgspec.ValidationError):
    """The object is too large, and it is unknown which object it is."""


def reduce(raw: bytes | msgspec.Raw) -> tuple[bytes | msgspec.Raw, str]:
    """
    Give the serialised object without what is too large, and the problem; if nothing is wrong, as it is.

    Raises :class:`NamelessError` if it is malformed besides that.
    """
    problem = find_excess(bytes(raw), MAX_OBJECT)
    if not problem:
        return raw, ""
    try:
        skeleton = _decode_skeleton(raw)
        if find_excess(bytes(skeleton.metadata), _MAX_METADATA):
            skeleton.metadata = msgspec.Raw(codec.encode(_decode_identity(skeleton.metadata)))
    except (RecursionError, ValueError) as e:  # to find out whose it is, would take seconds
        raise NamelessError(f"it is malformed, and {problem}") from e
    return codec.encode(skeleton), problem
