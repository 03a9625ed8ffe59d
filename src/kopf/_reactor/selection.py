"""Selection: which of the declared handlers are to be called for a detected change, and which accompany an object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.filters import matches_change, matches_field, matches_object
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._handlers.registry import deduplicate
from kopf._values.objects import ObjectMeta
from kopf._values.reasons import Reason


def select_accompanying(handlers: Iterable[ChangingHandler], cause: ChangingCause) -> list[ChangingHandler]:
    """
    Those handlers that can ever be called for the object as it is now.

    An object with none of them is not touched: no state is kept on it, no finalizer is put, nothing is logged.
    """
    return [handler for handler in handlers if matches_object(handler, cause)]


def select_spawning(handlers: Iterable[SpawningHandler], cause: ResourceCause) -> list[SpawningHandler]:
    """Those of the daemons & timers that are to accompany the object as it is now."""
    # Not before the filters: any of the declarations of one function can be the one that matches.
    return list(
        deduplicate(item for item in handlers if matches_object(item, cause) and matches_field(item, cause))
    )


def select_called(accompanying: Iterable[ChangingHandler], cause: ChangingCause) -> list[ChangingHandler]:
    """Those of the accompanying handlers that are to be called for this very change, in the order of declaration."""
    specific = [handler for handler in accompanying if _is_for_reason(handler, cause) and _matches(handler, cause)]
    # A function that is both for resuming and for the actual reason is called once, for the reason.
    known = {handler.identity for handler in specific if handler.reason == cause.reason}
    return list(
        deduplicate(
            handler
            for handler in specific
            if handler.reason == cause.reason or handler.identity not in known
        )
    )


def _is_for_reason(handler: ChangingHandler, cause: ChangingCause) -> bool:
    if handler.initial:
        return cause.initial and (cause.reason is not Reason.DELETE or handler.deleted)
    if handler.reason is None:
        return cause.reason in (Reason.CREATE, Reason.UPDATE)
    return handler.reason == cause.reason


def select_subhandlers(handlers: Iterable[ChangingHandler], cause: ChangingCause) -> list[ChangingHandler]:
    """Those of the sub-handlers that match the object and the change, whatever the reason of it."""
    return list(deduplicate(item for item in handlers if matches_object(item, cause) and _matches(item, cause)))


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
