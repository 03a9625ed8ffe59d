"""
The details of passes and patches: the changes, and the values before them, to be converted to texts later.

They are kept serialised until then, as users can modify the values, and as the values can be parts of large objects.
"""

from __future__ import annotations

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
"""Up to which size changes wait, and stanzas are decoded to show their values before a patch, in bytes."""
_SMALL = 600
"""Up to which size details are kept as they are, in bytes."""


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
    known: dict[str, Any] = {}
    changes = codec.decode(kept)
    if is_secret or len(kept) > _MAX_COMPARED:
        return show_patch(changes, None, secret=is_secret)
    if isinstance(changes, dict) and not before.pruned:
        try:
            known = _get_before(before, changes)
        except (ValueError, RecursionError):  # the values cannot be decoded, or are too deep
            known = {}
    return {"changes": codec.Raw(kept) if len(kept) <= _SMALL else _shorten(changes), "before": known}


def _get_before(before: KubeObject, changes: dict[str, Any]) -> dict[str, Any]:
    """Take out the values before the patch; small stanzas are not decoded, as this is cheaper."""
    head = before.head
    known: dict[str, Any] = {}
    for stanza, values in changes.items():
        if stanza == "metadata":
            old = {"labels": head.labels, "annotations": head.annotations, "finalizers": head.finalizers}
            known[stanza] = _take_changed(values, old)
        elif (raw := before.find_raw(stanza)) is not None and (size := memoryview(raw).nbytes) <= _MAX_COMPARED:
            known[stanza] = raw if size <= _SMALL else _take_changed(values, codec.decode(raw))
    return known


def _take_changed(changes: Any, known: Any) -> Any:
    """Take only the parts that are changed, with their texts cut."""
    if type(changes) is not dict or type(known) is not dict:
        return _shorten(known)
    return {key: _take_changed(value, known[key]) for key, value in changes.items() if known.get(key) is not None}


def _shorten(value: Any) -> Any:
    """Cut the texts to the shown length, as they can be whole objects."""
    if type(value) is str:
        return value[: MAX_RECORD if could_be_record(value) else MAX_VALUE + 1]
    if type(value) is dict:
        return {key: _shorten(item) for key, item in value.items()}
    return [_shorten(item) for item in value] if type(value) is list else value
