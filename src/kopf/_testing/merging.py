"""
Merge-patches that lead from one state of an object to another (RFC 7396).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def make_merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Make the patch with only what differs; what is absent after, is ``None`` in it."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if changes := make_merge_patch(old, value):
                patch[key] = changes
        elif key not in before or value != old:
            patch[key] = value
    return patch
