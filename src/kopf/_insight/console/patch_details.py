"""
The details of looks and patches: what has changed, and what was there before, to be made to texts later.

They are kept serialised until then: the values are of the users, who can modify them, or are parts of large objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._insight.console.texts import MAX_VALUE, Details, show_diff, show_patch
from kopf._values import codec
from kopf._values.diffs import Diff
from kopf._values.objects import KubeObject

_MAX_COMPARED = 16_384
"""Up to which size an object is decoded to show what was there before a patch, in bytes; and the changes, to wait."""
_SMALL = 600
"""What is smaller, is kept as it is, in bytes."""

Kept = bytes | Sequence[str]
"""The details as they wait: serialised, or as lines if they are secret, large, or too deep."""


def keep_diff(diff: Diff, *, is_secret: bool) -> Kept:
    """Keep the difference."""
    encoded = None if is_secret else _encode(diff)
    return show_diff(diff, secret=is_secret) if encoded is None else encoded


def keep_patch(changes: Any, *, is_secret: bool) -> Kept:
    """Keep the changes."""
    encoded = None if is_secret else _encode(changes)
    return show_patch(changes, None, secret=is_secret) if encoded is None else encoded


def restore_diff(kept: Kept) -> Details:
    """Get the details of a difference."""
    if not isinstance(kept, bytes):
        return kept
    diff = codec.decode(kept)
    return {"diff": diff if len(kept) <= _SMALL else _shorten(diff)}


def restore_patch(before: KubeObject, kept: Kept) -> Details:
    """Get the details of a patch; with what was there before it, if the object is small."""
    if not isinstance(kept, bytes):
        return kept
    changes, known = codec.decode(kept), {}
    if isinstance(changes, dict) and before.size <= _MAX_COMPARED and not before.pruned:
        with contextlib.suppress(ValueError, RecursionError):  # the values cannot be decoded, or are too deep
            known = _get_before(before.for_users(), changes)  # not to share its values between threads
    if len(kept) <= _SMALL:
        return {"changes": changes, "before": known}
    return {"changes": _shorten(changes), "before": _shorten(known)}


def _encode(value: Any) -> bytes | None:
    try:
        encoded = codec.encode(value)
    except (ValueError, TypeError):  # too deep
        return None
    return encoded if len(encoded) <= _MAX_COMPARED else None


def _get_before(obj: KubeObject, changes: dict[str, Any]) -> dict[str, Any]:
    """Take out what was there before in the fields that are changed; of the metadata, what is decoded already."""
    known = {key: obj.get(key) for key in changes if key != "metadata"}
    if "metadata" in changes:
        head = obj.head
        known["metadata"] = {"labels": head.labels, "annotations": head.annotations, "finalizers": head.finalizers}
    return _take_same(changes, known)


def _take_same(changes: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _take_same(value, known[key]) if isinstance(value, dict) and isinstance(known[key], dict) else known[key]
        for key, value in changes.items()
        if known.get(key) is not None
    }


def _shorten(value: Any) -> Any:
    """Cut the texts, which can be whole objects, to what is shown of them."""
    if type(value) is str:
        return value[: MAX_VALUE + 1]
    if type(value) is dict:
        return {key: _shorten(item) for key, item in value.items()}
    return [_shorten(item) for item in value] if type(value) is list else value
