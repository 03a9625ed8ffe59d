"""
Label selectors as written in objects: ``matchLabels`` and ``matchExpressions``, see "Labels and Selectors".
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the labels are selected. An empty selector selects everything, an absent one nothing."""
    if selector is None:
        return False
    return (all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
            and all(_fits(item, labels) for item in selector.get("matchExpressions") or ()))


def _fits(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = item.get("key", ""), item.get("values") or ()
    match item.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
