"""
The details of looks and patches: what has changed, and what was there before, to be made to texts later.

They are kept serialised until then: the values are of the users, who can modify them, or are parts of large objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._insight.console.texts import (
    MAX_RECORD,
    MAX_VALUE,
    Details,
    could_be_record,
    show_diff,
    show_patch,
)
from kopf._values import codec
from kopf._values.objects import KubeObject

_MAX_COMPARED = 16_384
"""Up to which size an object is decoded to show what was there before a patch, in bytes; and the changes, to wait."""
_SMALL = 600
"""What is smaller, is kept as it is, in bytes."""
_SMALL_BEFORE = 300
"""The same for a stanza as it was before a patch."""
_FEW = 8
"""How many old values of the metadata are looked up one by one."""

_SHOWN_METADATA = frozenset({"labels", "annotations", "finalizers"})


def keep(changes: Any) -> bytes:
    """Serialise a difference or a patch; but not if it is nested too deeply: there are no details then."""
    try:
        return codec.encode(changes)
    except (ValueError, TypeError):
        return b"[]"


def restore_diff(kept: bytes, *, is_secret: bool) -> Details:
    """Get the details of a difference; of a secret one, only which stanzas are different."""
    if is_secret or len(kept) > _MAX_COMPARED:
        return show_diff(codec.decode(kept), secret=is_secret)
    return {"diff": codec.Raw(kept) if len(kept) <= _SMALL else _shorten(codec.decode(kept))}


def restore_patch(before: KubeObject, kept: bytes, *, is_secret: bool) -> Details:
    """Get the details of a patch; with the values before it, if the object is small and not secret."""
    changes, known = codec.decode(kept), None
    if is_secret or len(kept) > _MAX_COMPARED:
        return show_patch(changes, None, secret=is_secret)
    if isinstance(changes, dict) and not before.pruned:
        try:
            known = _get_raw_before(before, changes)
            if known is None and before.size <= _MAX_COMPARED:
                known = _shorten(_get_before(before.for_users(), changes))  # not to share its values between threads
        except (ValueError, RecursionError):  # the values cannot be decoded, or are too deep
            known = None
    return {"changes": codec.Raw(kept) if len(kept) <= _SMALL else _shorten(changes), "before": known or {}}


def _get_before(obj: KubeObject, changes: dict[str, Any]) -> dict[str, Any]:
    """Take out what was there before in the fields that are changed; of the metadata, what is decoded already."""
    known = {key: obj.get(key) for key in changes if key != "metadata"}
    if "metadata" in changes:
        head = obj.head
        known["metadata"] = {"labels": head.labels, "annotations": head.annotations, "finalizers": head.finalizers}
    return _take_same(changes, known)


def _get_raw_before(before: KubeObject, changes: dict[str, Any]) -> dict[str, Any] | None:
    """Take the same from a small object with nothing decoded: whole stanzas as they are; ``None`` if it is large."""
    known: dict[str, Any] = {}
    for stanza, values in changes.items():
        if stanza != "metadata":
            raw = before.find_raw(stanza)
            if raw is not None:
                if memoryview(raw).nbytes > _SMALL_BEFORE:
                    return None
                known[stanza] = raw
        elif not isinstance(values, dict) or (metadata := _get_metadata_before(before, values)) is None:
            return None
        else:
            known[stanza] = metadata
    return known


def _get_metadata_before(before: KubeObject, changes: dict[str, Any]) -> dict[str, Any] | None:
    known: dict[str, Any] = {}
    for name, values in changes.items():
        old = getattr(before.head, name, None) if name in _SHOWN_METADATA else None
        if isinstance(old, dict) and isinstance(values, dict):
            if len(values) > _FEW:
                return None
            known[name] = {key: old[key][: MAX_VALUE + 1] for key in values if key in old}
        elif old:
            known[name] = old[:_FEW]
    return known


def _take_same(changes: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _take_same(value, known[key]) if isinstance(value, dict) and isinstance(known[key], dict) else known[key]
        for key, value in changes.items()
        if known.get(key) is not None
    }


def _shorten(value: Any) -> Any:
    """Cut the texts, which can be whole objects, to what is shown of them."""
    if type(value) is str:
        return value[: MAX_RECORD if could_be_record(value) else MAX_VALUE + 1]
    if type(value) is dict:
        return {key: _shorten(item) for key, item in value.items()}
    return [_shorten(item) for item in value] if type(value) is list else value
