"""
Rejections: the filters of a handler that reject an object, with the values.

Each criterion is checked alone by the code of the operator, with a copy of the handler that has no other criteria. So
the matching is not repeated here, and operators that explain nothing pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.filter_criteria import ABSENT, PRESENT, ValueFilter
from kopf._handlers.filters import (
    matches,
    matches_change,
    matches_either_state,
    matches_field,
    matches_when,
)
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, WebhookHandler
from kopf._insight.explaining.explanation import Rejection
from kopf._insight.explaining.redacted_texts import RedactedTexts, show_path
from kopf._values.fields import FieldPath, resolve
from kopf._values.reasons import Reason
from kopf._values.records import replace
from kopf._values.user_functions import FilterError

Criterion = Callable[[Any, Any], bool]

_NOTHING: dict[str, Any] = {"labels": None, "annotations": None, "when": None, "field": (), "value": None}
_NO_CHANGE: dict[str, Any] = {"old": None, "new": None}


class Filters:
    """The filters of one handler, as they are applied to one object."""

    def __init__(self, handler: ResourceHandler, cause: ResourceCause, texts: RedactedTexts) -> None:
        # Admission handlers and their callbacks are for requests: they have no answer about an object alone.
        self._is_calling = not isinstance(handler, WebhookHandler)
        self._handler = handler
        self._cause = cause
        self._texts = texts

    def list_rejections(self) -> list[Rejection]:
        """List the filters that reject the object as it is; for handlers of changes, also as it was last handled."""
        criterion = matches_either_state if isinstance(self._handler, ChangingHandler) else matches_field
        found = [*self._check_metadata(), *self._check_value(criterion)]
        if not found and self._handler.when is not None:  # it can rely on the other filters
            found = [*self._check(matches_when, {"when": self._handler.when}, "when", (), self._handler.when, None)]
        return found

    def list_change_rejections(self) -> list[Rejection]:
        """List the filters that reject the change; for handlers of changes that match the object itself."""
        handler, cause = self._handler, self._cause
        if not isinstance(handler, ChangingHandler) or not isinstance(cause, ChangingCause) or not handler.field:
            return []
        if not handler.field_needs_change or cause.reason not in (Reason.CREATE, Reason.UPDATE):
            return [*self._check_value(matches_field)]
        old, new = resolve(cause.old, handler.field), resolve(cause.new, handler.field)
        if old == new:
            return [self._reject("field", handler.field, None, new, text="has not changed, and a change is needed")]
        if handler.value is not None:
            return [*self._check_value(matches_change)]
        return [
            rejection
            for option, expected, actual in (("old", handler.old, old), ("new", handler.new, new))
            if expected is not None
            for rejection in self._check(
                matches_change, {"field": handler.field, option: expected}, option, handler.field, expected, actual
            )
        ]

    def _check_metadata(self) -> Iterator[Rejection]:
        handler, head = self._handler, self._cause.body.object.head
        for option, patterns, values in (
            ("labels", handler.labels, head.labels),
            ("annotations", handler.annotations, head.annotations),
        ):
            for key, expected in (patterns or {}).items():
                actual = (values or {}).get(key)
                yield from self._check(matches, {option: {key: expected}}, option, (key,), expected, actual)

    def _check_value(self, criterion: Criterion) -> Iterator[Rejection]:
        path, expected = self._handler.field, self._handler.value
        if path:
            actual = resolve(self._cause.body, path)
            option = "field" if expected is None else "value"
            wanted = PRESENT if expected is None else expected
            yield from self._check(criterion, {"field": path, "value": expected}, option, path, wanted, actual)

    def _check(
        self,
        criterion: Criterion,
        only: dict[str, Any],
        option: str,
        path: FieldPath,
        expected: ValueFilter,
        actual: Any,
    ) -> Iterator[Rejection]:
        """
        Check the criterion as if the handler had only these options.

        Large because the option is both checked and shown.
        """
        if callable(expected) and not self._is_calling:
            return
        try:
            is_satisfied = criterion(self._reduce(only), self._cause)
        except FilterError as e:
            yield self._reject(option, path, expected, actual, error=e.__cause__ or e)
        else:
            if not is_satisfied:
                yield self._reject(option, path, expected, actual)

    def _reduce(self, only: dict[str, Any]) -> ResourceHandler:
        """Make a copy of the handler with only these filters."""
        absent = {**_NOTHING, **_NO_CHANGE} if isinstance(self._handler, ChangingHandler) else _NOTHING
        return replace(self._handler, **{**absent, **only})

    def _reject(
        self,
        option: str,
        path: FieldPath,
        expected: ValueFilter,
        actual: Any,
        *,
        error: BaseException | None = None,
        text: str | None = None,
    ) -> Rejection:
        """
        Make the rejection.

        Large because a rejection tells everything.
        """
        texts = self._texts
        is_meta = option in ("labels", "annotations")
        place = ("metadata", option, *path) if is_meta else path
        wanted = "a change" if expected is None else texts.show_criterion(expected, place)
        shown = None if actual is None else texts.show(actual, place)
        failure = None if error is None else texts.show_error(error)
        said = _say(option, path, expected, wanted, shown, failure) if text is None else f"{_name(option, path)} {text}"
        return Rejection(
            filter=option,
            key=path[0] if is_meta else show_path(path) if path else None,
            expected=wanted,
            actual=shown,
            error=failure,
            text=said,
        )


def _name(option: str, path: FieldPath) -> str:
    match option:
        case "labels":
            return f"the label {path[0]!r}"
        case "annotations":
            return f"the annotation {path[0]!r}"
        case "old" | "new":
            return f"the {option} value of the field {show_path(path)!r}"
    return f"the field {show_path(path)!r}"


def _say(
    option: str, path: FieldPath, expected: ValueFilter, wanted: str, actual: str | None, error: str | None
) -> str:
    """Describe the rejection in words."""
    if callable(expected):
        about = "" if option == "when" else f" about {_name(option, path)}, which is {actual or 'absent'}"
        if error is not None:
            return f"the callback {wanted} of {option}= has failed{about}: {error}"
        return f"the callback {wanted} of {option}= says no{about}"
    verb = "was" if option == "old" else "is"
    found = "absent" if actual is None else actual
    if expected is PRESENT:
        return f"{_name(option, path)} must be present, and {verb} absent"
    if expected is ABSENT:
        return f"{_name(option, path)} must be absent, and {verb} {found}"
    return f"{_name(option, path)} must be {wanted}, and {verb} {found}"
