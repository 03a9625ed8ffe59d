"""
What can be waited for: any condition on an object, or what `kubectl wait --for` knows by words.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kopf_cluster.kinds.kind import Obj

Until: TypeAlias = Callable[[Obj], Any] | str
"""A function of the object, or ``"create"``, ``"delete"``, ``"condition=Ready"``, ``"condition=Ready=False"``."""

Condition: TypeAlias = Callable[[Obj | None], bool]
"""Tells whether it has come true, for an object or for its absence."""


def parse_condition(until: Until) -> Condition:
    """Make one function of all forms; raise `ValueError` if the words are not known."""
    if not isinstance(until, str):
        return lambda obj: obj is not None and _holds(until, obj)
    word, _, rest = until.partition("=")
    kind, _, status = rest.partition("=")
    if until == "create":
        return lambda obj: obj is not None
    if until == "delete":
        return lambda obj: obj is None
    if word == "condition" and kind:
        return lambda obj: obj is not None and _has_condition(obj, kind, status or "True")
    raise ValueError(f'{until!r} cannot be waited for: it is neither "create", nor "delete", nor "condition=TYPE", '
                     'nor "condition=TYPE=STATUS", nor a function of the object')


def _holds(until: Callable[[Obj], Any], obj: Obj) -> bool:
    """A field that is not there yet is what is usually waited for, so it is no error."""
    try:
        return bool(until(obj))
    except LookupError:
        return False


def _has_condition(obj: Obj, kind: str, status: str) -> bool:
    """As for kubectl, neither the type nor the status is case-sensitive."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(str(item.get("type")).lower() == kind.lower() and str(item.get("status")).lower() == status.lower()
               for item in conditions)
