"""
The refusals of patches whose outcome is no object of the kind: it is the patch to blame, not the object.
"""
from __future__ import annotations

from typing import Any

import msgspec

from kopf_cluster import codec, statuses
from kopf_cluster.kinds.kind import Obj


class _Nobody(msgspec.Struct, frozen=True):
    """How the object of a patch is named in such refusals: not at all."""

    group: str = ""
    kind: str = ""
    plural: str = ""


def blame_patch(outcome: Obj, strategic: Obj | None, why: str) -> statuses.APIStatus:
    """Make the refusal: with the patched document, but strategic patches never make one, and are shown themselves."""
    shown = codec.encode(outcome).decode() if strategic is None else _format(strategic)
    return statuses.invalid(_Nobody(), "", [statuses.invalid_value("patch", shown, why)])


def _format(value: Any) -> str:
    """Show a document as Go's ``%+v`` does."""
    match value:
        case dict():
            return f"map[{' '.join(f'{key}:{_format(item)}' for key, item in sorted(value.items()))}]"
        case list():
            return f"[{' '.join(map(_format, value))}]"
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
    return str(value)
