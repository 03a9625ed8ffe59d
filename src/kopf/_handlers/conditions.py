"""
Conditions: the state of an object in its status, for people and tools, by the conventions of the Kubernetes API.

They are a list with one item of each type, and each type has its own writer. A merge patch would replace the whole
list. So, a function of the patch changes them: in the freshest state, without changes of the items of others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from kopf._handlers.causes import ResourceCause
from kopf._handlers.current_handler import current_cause
from kopf._handlers.handlers import Handler, ReconcilingHandler
from kopf._handlers.time_source import time_source
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.patches import Patch
from kopf._values.records import FrozenRecord
from kopf._values.selectors import ResourceModel

Obj = dict[str, Any]

_TYPE = re.compile(r"([a-z0-9][-a-z0-9.]*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""As in the schema of ``metav1.Condition``."""
_MAX_TYPE, _MAX_REASON, _MAX_MESSAGE = 316, 1024, 32768
_STATUSES: Mapping[bool | None, str] = {True: "True", False: "False", None: "Unknown"}
_MEANINGS: Mapping[Any, bool | None] = {"True": True, "False": False}
_UNFIT: Mapping[str, bool] = {"Ready": False, "Stalled": True}
_STANZAS: Mapping[str, str] = {"InvalidSpec": "spec", "InvalidStatus": "status"}
"""The stanza that does not fit the model, by the reason of the condition."""


class Condition(FrozenRecord, frozen=True):
    """One condition of an object. In an ``if``, it is as true as its status; an unknown status is false."""

    status: bool | None
    """The status; ``None`` is for ``Unknown``."""
    reason: str
    """The reason for programs: one word in CamelCase, e.g. ``"ImagePullFailed"``."""
    message: str = ""
    """The reason for people. Kopf cuts it after 32,768 characters."""
    observed_generation: int | None = None
    """The ``metadata.generation`` that it describes. Kopf sets it."""
    last_transition_time: str | None = None
    """The time of the last change of the status (RFC 3339). Kopf sets it."""

    def __bool__(self) -> bool:
        return self.status is True


def conditions(patch: Patch, body: Mapping[str, Any] | None = None) -> Conditions:
    """
    Get the conditions of an object as a mutable mapping of their types to :class:`kopf.Condition`.

    :param patch: the ``patch`` of the handler. It gets the changes of the conditions.
    :param body: the whole object; by default, the object of the running handler.
    :raises LookupError: if there is no body, and no handler is running.
    :raises TypeError: if the body is not a whole object.
    """
    cause = current_cause.get(None)
    if body is None:
        if cause is None:
            raise LookupError("No handler is being executed here; pass the object: kopf.conditions(patch, body).")
        body = cause.body
    elif "metadata" not in body:
        raise TypeError("Pass the whole object, not its status: kopf.conditions(patch, body).")
    return Conditions(patch, body, cause)


class Conditions(MutableMapping[str, Condition]):
    """The conditions of one object, with the changes that the patch will make."""

    __slots__ = ("_body", "_generation", "_patch")

    def __init__(self, patch: Patch, body: Mapping[str, Any], cause: ResourceCause | None) -> None:
        self._patch = patch
        self._body = body
        # Without the subresource for the status, each change of the status makes a new generation.
        is_apart = cause is None or "status" in cause.resource.subresources
        self._generation = (body.get("metadata") or {}).get("generation") if is_apart else None

    @property
    def _changes(self) -> _Changes:
        """All instances for one patch share it."""
        return next((fn for fn in self._patch.fns if isinstance(fn, _Changes)), _Changes())

    @property
    def changed(self) -> Collection[str]:
        """The types of conditions that the patch sets or removes."""
        return self._changes.by_types.keys()

    def __getitem__(self, type: str) -> Condition:
        for item in self._list():
            if item.get("type") == type:
                meaning, reason, message = _MEANINGS.get(item.get("status")), item.get("reason"), item.get("message")
                times = item.get("observedGeneration"), item.get("lastTransitionTime")
                return Condition(meaning, reason or "", message or "", *times)
        raise KeyError(type)

    def __setitem__(self, type: str, condition: Condition) -> None:
        """
        Set the condition. The time of its transition changes only with its status.

        Raises :class:`ValueError` if the type or the reason violates the conventions.
        """
        changed = _make_item(type, condition)
        if self._generation is not None:
            changed["observedGeneration"] = self._generation
        now = time_source.get().now()
        self._note(type, lambda old: _update(old, changed, f"{now:%Y-%m-%dT%H:%M:%SZ}"))

    def __delitem__(self, type: str) -> None:
        if type not in self:
            raise KeyError(type)
        self._note(type, lambda old: None)

    def __iter__(self) -> Iterator[str]:
        return (item["type"] for item in self._list() if "type" in item)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def _list(self) -> list[Obj]:
        return self._changes.apply(_list_items(self._body))

    def _note(self, type: str, change: Callable[[Obj | None], Obj | None]) -> None:
        changes = self._changes
        if not changes.by_types:
            self._patch.fns.append(changes)
        changes.by_types[type] = change


class _Changes:
    """The function of the patch that changes conditions of some types in any state of the object."""

    def __init__(self) -> None:
        self.by_types: dict[str, Callable[[Obj | None], Obj | None]] = {}

    @property
    def status_fields(self) -> Collection[str]:
        """The fields of the status that must exist after that. Kopf warns if the API drops them."""
        return ("conditions",) if self.apply([]) else ()

    def __call__(self, body: Any) -> None:
        old = _list_items(body)
        new = self.apply(old)
        if new != old:
            if not isinstance(body.get("status"), dict):
                body["status"] = {}
            body["status"]["conditions"] = new

    def apply(self, items: list[Obj]) -> list[Obj]:
        result: dict[str, Obj | None] = {item["type"]: item for item in items if "type" in item}
        result |= {type: change(result.get(type)) for type, change in self.by_types.items()}
        return [item for item in result.values() if item is not None]


def report_mismatch(handler: Handler, cause: ResourceCause, error: ModelMismatchError) -> None:
    """Report in the conditions that Kopf does not call the handler until the object fits its model."""
    found = Conditions(cause.patch, cause.body, cause)
    reason = next(reason for reason, stanza in _STANZAS.items() if error.field.startswith(stanza))
    for type, status in _UNFIT.items():
        found[type] = Condition(status, reason, str(error))
    if _sets_conditions(handler):
        found.pop("Reconciling", None)


def withdraw_mismatch(model: ResourceModel, patch: Patch, body: Mapping[str, Any], handlers: Iterable[Handler]) -> None:
    """
    Remove the report of a mismatch from the conditions if the object fits the model now.

    This depends on the object alone, so all operators come to the same conclusion, and do not fight. If any of the
    ``handlers`` sets conditions, the object must not look ready before the handler runs.
    """
    found = Conditions(patch, body, None)
    group, version, _ = model.get_resource_names()
    for type in _UNFIT.keys() & found.keys():
        stanza = _STANZAS.get(found[type].reason)
        text = f" of {group}/{version}: {stanza}"  # other programs can use these reasons, too
        if stanza is not None and text in found[type].message and model.fits(body, stanza):
            del found[type]
            if type == "Ready" and any(map(_sets_conditions, handlers)):
                found[type] = Condition(None, "NotReconciledYet")


def _sets_conditions(handler: Handler) -> bool:
    return isinstance(handler, ReconcilingHandler) and handler.sets_conditions


def _list_items(body: Mapping[str, Any]) -> list[Obj]:
    status = body.get("status")
    items = status.get("conditions") if isinstance(status, Mapping) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _make_item(type: str, condition: Condition) -> Obj:
    if not isinstance(condition, Condition):
        raise TypeError(f"The {type!r} must be a kopf.Condition, got {condition!r}.")
    if condition.status not in _STATUSES:
        raise ValueError(f"The status of {type!r} must be True, False, or None, got {condition.status!r}.")
    if len(type) > _MAX_TYPE or _TYPE.fullmatch(type) is None:
        raise ValueError(f"The type of a condition must be one word in CamelCase, e.g. 'Ready', got {type!r}.")
    reason = condition.reason
    if len(reason) > _MAX_REASON or _REASON.fullmatch(reason) is None:
        guess = "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", reason))[:_MAX_REASON]
        hint = f" Did you mean {guess!r}? Texts go to message=." if _REASON.fullmatch(guess) else ""
        raise ValueError(f"The reason of {type!r} must be one word in CamelCase, got {reason!r}.{hint}")
    message = condition.message[:_MAX_MESSAGE]
    return {"type": type, "status": _STATUSES[condition.status], "reason": reason, "message": message}


def _update(old: Obj | None, changed: Obj, now: str) -> Obj:
    """Merge the changes into the old condition; return the old one if nothing changes."""
    if old is None:
        return {**changed, "lastTransitionTime": now}
    new = {key: value for key, value in old.items() if key != "observedGeneration"} | changed
    if "observedGeneration" not in old and {**new, "observedGeneration": None} == {**old, "observedGeneration": None}:
        return old  # the schema of the object can lack this field: then it is no change
    if old.get("status") != new["status"] or not old.get("lastTransitionTime"):
        new["lastTransitionTime"] = now
    return new
