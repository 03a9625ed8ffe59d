"""
Objects that would take too much memory when decoded. Kopf reduces them to their metadata, or to their identities.

Any user with the permission to create objects can create such an object: 3 MiB of empty dicts become 80 MiB.
"""

from __future__ import annotations

import msgspec

from kopf._values import codec
from kopf._values.decoded_sizes import find_excess

MAX_OBJECT = 72 * 2**20
"""The limit of memory for an object, in bytes. All objects that etcd stores by default (1.5 MiB) take less."""

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
    """The object is too large, and its identity is unreadable."""


def reduce(raw: bytes | msgspec.Raw) -> tuple[bytes | msgspec.Raw, str]:
    """
    Return the serialised object without its oversized parts, and the problem; or unchanged, and no problem.

    Raises :class:`NamelessError` if it is also malformed.
    """
    problem = find_excess(memoryview(raw), MAX_OBJECT)
    if not problem:
        return raw, ""
    try:
        skeleton = _decode_skeleton(raw)
        if find_excess(bytes(skeleton.metadata), _MAX_METADATA):
            skeleton.metadata = msgspec.Raw(codec.encode(_decode_identity(skeleton.metadata)))
    except (RecursionError, ValueError) as e:  # a search for its identity would take seconds
        raise NamelessError(f"it is malformed, and {problem}") from e
    return codec.encode(skeleton), problem
