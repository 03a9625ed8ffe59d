"""Selection: which of the declared handlers are to be called for a detected change, and which accompany an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._handlers.matching import FilterError, matches, matches_change, matches_either_state, matches_field
from kopf._handlers.registry import deduplicate
from kopf._logging.loggers import Logger
from kopf._values.objects import ObjectMeta
from kopf._values.reasons import Reason

H = TypeVar("H", bound=ResourceHandler)

_MAX_FAILURES = 7
"""How many times in a row a filter can fail until its handler is skipped: about half a minute with default delays."""


class SpawningSelection:
    """
    Selects daemons and timers for one state of an object, and notes those for which it cannot be told.

    When a callback of a user fails, that affects the handler it belongs to, but not the others.
    """

    def __init__(self, cause: ResourceCause) -> None:
        self._cause = cause
        self.failures: dict[ResourceHandler, FilterError] = {}
        """Why it is unknown for some handlers if they match."""

    def select_spawning(self, handlers: Iterable[SpawningHandler]) -> list[SpawningHandler]:
        """Those of the daemons & timers that are to accompany the object as it is now."""
        # Not before the filters: any of the declarations of one function can be the one that matches.
        return list(deduplicate(handler for handler in handlers if self._check(matches, handler)))

    def _check(self, criterion: Callable[[H, Any], bool], handler: H) -> bool:
        try:
            return criterion(handler, self._cause)
        except FilterError as e:
            self.failures[handler] = e
            return False


class Selection(SpawningSelection):
    """Selects all handlers for one state of an object."""

    def __init__(self, cause: ChangingCause) -> None:
        super().__init__(cause)
        self._cause: ChangingCause = cause

    def select_accompanying(self, handlers: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """
        Those handlers that can be called for the object as it is now, or could be for its last handled state.

        An object with none of them is not touched: no state is kept on it, no finalizer is put, nothing is logged.
        """
        return [handler for handler in handlers if self._check(matches_either_state, handler)]

    def select_demanding(self, accompanying: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """Those of the accompanying handlers that block the deletion of the object as it is now."""
        return [item for item in accompanying if item.requires_finalizer and self._check(matches_field, item)]

    def select_called(self, accompanying: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """Those of the accompanying handlers that are to be called for this very change, as they are declared."""
        cause = self._cause
        specific = [item for item in accompanying if _is_for_reason(item, cause) and self._check(_matches, item)]
        # A function that is both for resuming and for the actual reason is called once, for the reason.
        known = {handler.identity for handler in specific if handler.reason == cause.reason}
        return list(
            deduplicate(
                handler
                for handler in specific
                if handler.reason == cause.reason or handler.identity not in known
            )
        )

    def select_subhandlers(self, handlers: Iterable[ChangingHandler]) -> list[ChangingHandler]:
        """
        Those of the sub-handlers that match the object and the change, whatever the reason of it.

        Raises :class:`FilterError` if it cannot be told: it is a failure of the parent handler then.
        """
        cause = self._cause
        return list(
            deduplicate(item for item in handlers if matches_either_state(item, cause) and _matches(item, cause))
        )

    def get_relevant_failures(self) -> list[FilterError]:
        """The failures because of which it is unknown what is to be called or started right now."""
        return [
            error
            for handler, error in self.failures.items()
            if (isinstance(handler, ChangingHandler) and _is_for_reason(handler, self._cause))
            or (isinstance(handler, SpawningHandler) and self._cause.reason is not Reason.DELETE)
        ]


def _is_for_reason(handler: ChangingHandler, cause: ChangingCause) -> bool:
    if handler.initial:
        return cause.initial and (cause.reason is not Reason.DELETE or handler.deleted)
    if handler.reason is None:
        return cause.reason in (Reason.CREATE, Reason.UPDATE)
    return handler.reason == cause.reason


def _matches(handler: ChangingHandler, cause: ChangingCause) -> bool:
    """The handlers of changes look at both sides of the change, where there is a change; all others at the object."""
    if handler.field_needs_change and cause.reason in (Reason.CREATE, Reason.UPDATE):
        return matches_change(handler, cause)
    return matches_field(handler, cause)


def could_match(handlers: Sequence[ResourceHandler], meta: ObjectMeta) -> bool:
    """Tell if any of the handlers could match, as cheaply as possible: with no callbacks called."""
    for handler in handlers:
        if handler.labels and not _could_match_metadata(handler.labels.items(), meta.labels or {}):
            continue
        if handler.annotations and not _could_match_metadata(handler.annotations.items(), meta.annotations or {}):
            continue
        return True
    return False


def _could_match_metadata(pattern: Iterable[tuple[str, object]], content: dict[str, str]) -> bool:
    return all(not isinstance(expected, str) or content.get(key) == expected for key, expected in pattern)


def judge_failures(failures: Sequence[FilterError], errors: int, *, logger: Logger) -> FilterError | None:
    """
    Decide what the failed filters mean: at first, the object is to be looked at again, so that nothing is missed.

    If they keep failing (``errors`` times in a row so far), it is as if the handlers are not for this object.
    """
    if errors < _MAX_FAILURES:
        return failures[0] if failures else None
    for error in failures:
        logger.error("%s. The handler is skipped.", error)
    return None
