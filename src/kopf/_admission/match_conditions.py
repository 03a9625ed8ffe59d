"""
What of the filters of the admission handlers the API servers can check themselves, before they call the webhooks.

It only saves calls, so nobody may notice a difference: whatever cannot be said exactly, is not said at all, and is
left to the operator, which checks all filters anyway. An object is never left out here if it is for the handler.

See "Matching requests: objectSelector" and "matchConditions" in "Dynamic Admission Control".
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from kopf._handlers.criteria import ABSENT, PRESENT
from kopf._handlers.handlers import WebhookHandler

_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Expression = dict[str, Any]
"""One requirement of a label selector, or one match condition."""


def select_objects(handler: WebhookHandler) -> Expression:
    """
    Make the ``objectSelector``.

    What cannot have labels (the options of connections) is never selected by the API servers as soon as there is any
    selector, not even if the label must be absent; so absence is not checked for subresources.
    """
    expressions: list[Expression] = []
    for key, expected in (handler.labels or {}).items():
        if not _is_label_key(key):
            continue
        if expected is PRESENT:
            expressions.append({"key": key, "operator": "Exists"})
        elif expected is ABSENT and handler.subresource is None:
            expressions.append({"key": key, "operator": "DoesNotExist"})
        elif isinstance(expected, str) and _is_label_value(expected):
            expressions.append({"key": key, "operator": "In", "values": [expected]})
    return {"matchExpressions": expressions} if expressions else {}


def list_conditions(handler: WebhookHandler) -> list[Expression]:
    """Make the ``matchConditions`` (Kubernetes 1.28 and up; older servers ignore them)."""
    filters: list[tuple[Sequence[str], object]] = [
        (("metadata", "annotations", key), expected) for key, expected in (handler.annotations or {}).items()
    ]
    if handler.field:
        filters.append((handler.field, PRESENT if handler.value is None else handler.value))
    conditions = [text for path, expected in filters if (text := _make_condition(path, expected)) is not None]
    return [{"name": f"filter-{index}", "expression": text} for index, text in enumerate(conditions, start=1)]


def _make_condition(path: Sequence[str], expected: object) -> str | None:
    """
    Say it in CEL; nothing if it cannot be said exactly.

    Only strings are compared: in Python, ``True == 1 == 1.0``, and it is not so in CEL. ``null`` is absence. Strings
    with control characters (and broken Unicode) are not trusted to survive all the ways they go.
    """
    if expected is not PRESENT and expected is not ABSENT and not isinstance(expected, str):
        return None
    if not all(text.isprintable() for text in (*path, expected) if isinstance(text, str)):
        return None
    literals = [_quote(key) for key in path]
    final = "!= null" if not isinstance(expected, str) else f"== {_quote(expected)}"
    steps = ["o != null"]
    place = "o"
    for literal in literals:
        steps += [f"type({place}) == map", f"{literal} in {place}"]
        place = f"{place}[{literal}]"
    if isinstance(expected, str):
        steps.append(f"type({place}) == string")
    steps.append(f"{place} {final}")
    text = " && ".join(steps)
    # There are no variables in CEL but those of the macros; and deletions are about the old object.
    return f"[object != null ? object : oldObject].all(o, {f'!({text})' if expected is ABSENT else text})"


def _quote(text: str) -> str:
    """Make a literal: in what can occur here, those of JSON and of CEL are the same."""
    return json.dumps(text, ensure_ascii=False)


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    is_prefix_good = not slash or (len(prefix) <= 253 and _LABEL_PREFIX.fullmatch(prefix) is not None)
    return is_prefix_good and _LABEL_NAME.fullmatch(name) is not None


def _is_label_value(value: str) -> bool:
    return not value or _LABEL_NAME.fullmatch(value) is not None
