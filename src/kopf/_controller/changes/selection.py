"""Selection: which of the declared handlers match a detected change, and which ones match an object at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from kopf._controller.changes.decision import Choice
from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.filters import matches, matches_change, matches_either_state, matches_field
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._handlers.registry import HandlersOfResource, deduplicate
from kopf._values.ids import HandlerId
from kopf._values.objects import ObjectMeta
from kopf._values.reasons import Reason
from kopf._values.user_functions import FilterError, list_read_arguments

H = TypeVar("H", bound=ResourceHandler)
C = TypeVar("C", bound=ResourceCause)

_NOBODY = frozenset[HandlerId]()


class Candidates:
    """The handlers of one resource, with facts about their selection that do not depend on the object."""

    def __init__(self, handlers: HandlersOfResource) -> None:
        self.changing = handlers.changing
        self.spawning = handlers.spawning
        self.ids = tuple(dict.fromkeys(handler.id for handler in handlers.changing))
        models = (item.model for item in (*handlers.changing, *handlers.spawning) if item.model is not None)
        self.model = next((model for model in models if model.has_conditions), None)
        """The model whose mismatches are reported in the conditions of the objects."""
        self.is_filtered = any(map(is_filtered, (*handlers.changing, *handlers.spawning)))
        """Whether the selection depends on the object, i.e. not all handlers are for all objects."""
        self.follows = frozenset[str]().union(
            *map(list_followed, (*handlers.spawning, *(item for item in handlers.changing if item.requires_finalizer)))
        )
        """The non-essential stanzas whose changes can affect which daemons, timers, and finalizers an object needs."""
        self._choices: dict[tuple[Reason, bool, frozenset[HandlerId]], Choice] = {}

    def select_all(self, reason: Reason, *, initial: bool, woken: Collection[HandlerId] = ()) -> Choice:
        """Select the handlers for any object; without filters, all objects share one selection."""
        key = reason, initial, frozenset(woken) if woken else _NOBODY
        if (choice := self._choices.get(key)) is None:
            suitable = [item for item in self.changing if is_for_reason(item, reason, initial, woken)]
            called = _select_specific(suitable, reason)
            spawning = list(deduplicate(self.spawning))
            choice = self._choices[key] = Choice(
                accompanying=self.changing,
                called=called,
                spawning=spawning,
                demanding=_list_demanding(self.changing, spawning),
            )
        return choice


class Selection(Generic[C]):
    """
    Selects handlers for one state of an object, and notes those for which it cannot tell.

    A failed callback affects the handler it belongs to, but not the others.
    """

    def __init__(self, cause: C) -> None:
        self._cause = cause
        self.failures: dict[ResourceHandler, FilterError] = {}
        """The handlers with failed filters, which possibly match, and their errors."""

    def select_spawning(self, handlers: Iterable[SpawningHandler]) -> list[SpawningHandler]:
        """Select the daemons and timers for the object in its current state."""
        # Not before the filters: any of the declarations of one function can match.
        return list(deduplicate(handler for handler in handlers if self._check(matches, handler)))

    def _check(self, criterion: Callable[[H, Any], bool], handler: H) -> bool:
        try:
            return criterion(handler, self._cause)
        except FilterError as e:
            self.failures[handler] = e
            return False

    def select_accompanying(self, handlers: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """
        Select the handlers that match the object in its current state, or in its last handled one.

        An object without such handlers is not touched: no state is stored, no finalizer is added, nothing is logged.
        """
        return [handler for handler in handlers if self._check(matches_either_state, handler)]

    def select_demanding(self, accompanying: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """Select the accompanying handlers that block the deletion of the object in its current state."""
        return [item for item in accompanying if item.requires_finalizer and self._check(matches_field, item)]

    def select_called(self: Selection[ChangingCause], accompanying: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """Select the accompanying handlers to call for this change."""
        cause = self._cause
        return _select_specific(
            [
                item
                for item in accompanying
                if is_for_reason(item, cause.reason, cause.initial, cause.woken) and self._check(_matches, item)
            ],
            cause.reason,
        )

    def select_subhandlers(
        self: Selection[ChangingCause], handlers: Iterable[ChangingHandler]
    ) -> list[ChangingHandler]:
        """
        Select the sub-handlers that match the object and the change, for any reason.

        Raises :class:`FilterError` if a filter fails: this is a failure of the parent handler.
        """
        cause = self._cause
        return list(
            deduplicate(item for item in handlers if matches_either_state(item, cause) and _matches(item, cause))
        )


def select(candidates: Candidates, cause: ChangingCause) -> Choice:
    """Select the handlers for an object and its change."""
    selection = Selection(cause)
    accompanying = selection.select_accompanying(candidates.changing)
    called = selection.select_called(accompanying)
    spawning = selection.select_spawning(candidates.spawning)
    demanding = selection.select_demanding(accompanying)
    return Choice(
        accompanying=accompanying,
        called=called,
        spawning=spawning,
        demanding=_list_demanding(demanding, spawning),
        failures=selection.failures,
        relevant_failures=_get_relevant_failures(selection.failures, cause.reason, cause.initial, cause.woken),
    )


def select_background(candidates: Candidates, cause: ResourceCause, reason: Reason) -> Choice:
    """Select the daemons and timers for an object, if there are no handlers of changes."""
    selection = Selection(cause)
    spawning = selection.select_spawning(candidates.spawning)
    return Choice(
        spawning=spawning,
        demanding=_list_demanding((), spawning),
        failures=selection.failures,
        relevant_failures=_get_relevant_failures(selection.failures, reason),
    )


def _list_demanding(
    changing: Iterable[ChangingHandler], spawning: Iterable[SpawningHandler]
) -> list[ChangingHandler | SpawningHandler]:
    handlers: tuple[ChangingHandler | SpawningHandler, ...] = (*changing, *spawning)
    return [handler for handler in handlers if handler.requires_finalizer]


def _get_relevant_failures(
    failures: Mapping[ResourceHandler, FilterError],
    reason: Reason,
    initial: bool = False,
    woken: Collection[HandlerId] = (),
) -> Sequence[FilterError]:
    """List the errors of handlers that would be called or started right now."""
    return [
        error
        for handler, error in failures.items()
        if (isinstance(handler, ChangingHandler) and is_for_reason(handler, reason, initial, woken))
        or (isinstance(handler, SpawningHandler) and reason is not Reason.DELETE)
    ]


def _select_specific(handlers: Sequence[ChangingHandler], reason: Reason) -> list[ChangingHandler]:
    """Deduplicate: a function for both resuming and the actual reason is called once, for the reason."""
    known = {handler.identity for handler in handlers if handler.reason == reason}
    return list(
        deduplicate(handler for handler in handlers if handler.reason == reason or handler.identity not in known)
    )


def is_filtered(handler: ResourceHandler) -> bool:
    """Tell if the handler has filters, so that it is not for all objects."""
    return bool(handler.labels or handler.annotations or handler.field) or handler.when is not None


_TRACED = frozenset({"metadata", "status"})
"""The non-essential stanzas that the framework itself writes to."""

_UNTRACED = frozenset({"spec", "labels", "name", "namespace", "uid", "value", "param", "logger", "resource"})
"""The arguments of callbacks that do not depend on these stanzas."""


def list_followed(handler: ResourceHandler) -> frozenset[str]:
    """List the traced stanzas whose changes can affect whether the handler matches."""
    patterns = (*(handler.labels or {}).values(), *(handler.annotations or {}).values())
    callbacks = [item for item in (handler.when, handler.value, *patterns) if callable(item)]
    read = [list_read_arguments(item) for item in callbacks]
    if any(names is None or not names <= _UNTRACED | _TRACED_ARGUMENTS.keys() for names in read):
        return _TRACED  # it can read anything
    stanzas = {stanza for names in read for name in names or () if (stanza := _TRACED_ARGUMENTS.get(name))}
    return _TRACED & {*stanzas, *handler.field[:1], *(["metadata"] if handler.annotations else [])}


_TRACED_ARGUMENTS = {"status": "status", "meta": "metadata", "annotations": "metadata"}


def is_for_reason(handler: ChangingHandler, reason: Reason, initial: bool, woken: Collection[HandlerId] = ()) -> bool:
    """
    Tell if the handler is for the reason, or is called for any reason.

    Handlers with owned objects are called at the start, too: these objects can have changed during a downtime.
    """
    if handler.is_wakeable and (initial or handler.id in woken) and reason is not Reason.DELETE:
        return True
    if handler.initial:
        return initial and (reason is not Reason.DELETE or handler.deleted)
    if handler.reason is None:
        return reason in (Reason.CREATE, Reason.UPDATE)
    return handler.reason == reason


def _matches(handler: ChangingHandler, cause: ChangingCause) -> bool:
    """Check the field: in both states of a change for handlers of field changes, otherwise in the object."""
    if handler.field_needs_change and cause.reason in (Reason.CREATE, Reason.UPDATE):
        return matches_change(handler, cause)
    return matches_field(handler, cause)


def could_match(handlers: Sequence[ResourceHandler], meta: ObjectMeta) -> bool:
    """Tell if any of the handlers could match; cheaply, without calling callbacks."""
    for handler in handlers:
        if handler.labels and not _could_match_metadata(handler.labels.items(), meta.labels or {}):
            continue
        if handler.annotations and not _could_match_metadata(handler.annotations.items(), meta.annotations or {}):
            continue
        return True
    return False


def _could_match_metadata(pattern: Iterable[tuple[str, object]], content: dict[str, str]) -> bool:
    return all(not isinstance(expected, str) or content.get(key) == expected for key, expected in pattern)
