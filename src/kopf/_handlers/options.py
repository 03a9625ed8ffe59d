"""
The options of the decorators: their names and types, and the checks of what is given for them.

The checks are made in the decorators, so that a wrong option is refused in its line, not when the handler is needed.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypedDict

from kopf._handlers.criteria import MetaFilter, MetaFilterToken, ValueFilter, WhenFilter
from kopf._handlers.declarations import DeclarationError
from kopf._handlers.handler_errors import ErrorsMode
from kopf._handlers.registry import OperatorRegistry
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.fields import FieldSpec
from kopf._values.reasons import Operation
from kopf._values.similar_names import find_similar_names


class HandlerOptions(TypedDict, total=False):
    """Options of all handlers."""

    id: str | None
    """The name in the logs and in the persisted state; the default is the name of the function."""
    param: Any
    """Any value to pass to the handler as the ``param`` kwarg."""


class RetryOptions(HandlerOptions, total=False):
    """Options of the handlers that are retried when they fail."""

    errors: ErrorsMode | None
    """How arbitrary exceptions are treated; the default is ``TEMPORARY``."""
    timeout: float | None
    """In how many seconds since its first attempt the handler must succeed; unlimited by default."""
    retries: int | None
    """How many attempts are made; unlimited by default."""
    backoff: float | ExponentialBackoff | None
    """
    In how many seconds to retry after arbitrary exceptions, or :func:`kopf.exponential`; the default is in the
    settings: 60.
    """


class ActivityOptions(RetryOptions, total=False):
    """Options of the handlers of the operator's own life."""

    registry: OperatorRegistry | None
    """Where to register; by default, in the default registry."""


class FilterOptions(TypedDict, total=False):
    """Options to choose the objects."""

    labels: Mapping[str, MetaFilter] | None
    annotations: Mapping[str, MetaFilter] | None
    when: WhenFilter | None
    field: FieldSpec
    value: ValueFilter


class SelectorOptions(TypedDict, total=False):
    """Options to name the resource, instead of the positional arguments or in addition to them."""

    group: str | None
    version: str | None
    kind: str | None
    plural: str | None
    singular: str | None
    shortcut: str | None
    category: str | None


class EventOptions(HandlerOptions, FilterOptions, SelectorOptions, total=False):
    """Options of :func:`event`."""

    registry: OperatorRegistry | None


class CreateOptions(RetryOptions, FilterOptions, SelectorOptions, total=False):
    """Options of :func:`create`, and of all other handlers of changes."""

    registry: OperatorRegistry | None


class OwnerOptions(CreateOptions, total=False):
    """Options of those handlers of changes that can be called because of the owned objects, too."""

    owns: str | Collection[str] | None
    """Which resources the object owns, by names: the handler is also called when an owned object has changed."""


class DaemonOptions(CreateOptions, total=False):
    """Options of :func:`daemon`."""

    initial_delay: float | Callable[..., float] | None
    """In how many seconds after the object is noticed to start; or a function of the kwargs that says that."""
    cancellation_backoff: float | None
    """How long it may take to exit on request until it is cancelled."""
    cancellation_timeout: float | None
    """How long it may take to exit after that until it is abandoned; by default, it is never cancelled."""
    cancellation_polling: float | None
    """How often to remind of it in the logs if it does not exit; the default is in the settings: 60."""
    optional: bool | None
    """Whether the object can be deleted without waiting for the daemon, so that no finalizer is needed."""


class TimerOptions(CreateOptions, total=False):
    """Options of :func:`timer`."""

    initial_delay: float | Callable[..., float] | None
    """In how many seconds after the object is noticed to begin; or a function of the kwargs that says that."""
    interval: float | None
    """How many seconds there are between two runs; without it, it runs once (or once after each idling)."""
    sharp: bool | None
    """Whether the interval is counted from the beginning of the previous run, not from its end."""
    idle: float | None
    """For how many seconds the object must stay unchanged before a run."""
    optional: bool | None
    """Whether the object can be deleted in the middle of a run, so that no finalizer is needed."""


class WebhookOptions(EventOptions, total=False):
    """Options of :func:`validate` & :func:`mutate`. There are no retries: somebody waits for the answer."""

    operation: Operation | None
    """Which operation to check: ``"CREATE"``, ``"UPDATE"``, ``"DELETE"``, ``"CONNECT"``; all by default."""
    operations: Collection[Operation] | None
    """The same for several operations."""
    subresource: str | None
    """Which subresource to check, e.g. ``"status"``; the object itself by default; ``"*"`` for all of these."""
    persistent: bool | None
    """Whether to block the changes also when the operator does not run; not by default."""
    side_effects: bool | None
    """Whether something else is changed by the handler (but not in dry runs); not by default."""
    ignore_failures: bool | None
    """Whether to admit the changes if the handler fails or cannot be reached; not by default."""


class SubhandlerOptions(RetryOptions, FilterOptions, total=False):
    """Options of :func:`subhandler` & :func:`register`, besides ``old`` & ``new``, as of :func:`update`."""


def check_options(
    options: Mapping[str, Any],
    known: type[HandlerOptions] | type[FilterOptions],
    *,
    others: Iterable[str] = (),
    **specific: Any,
) -> None:
    """
    Raise one :class:`DeclarationError` for all options that are unknown to this kind of handlers, or make no sense.

    ``specific`` are the options that only this decorator has; ``others`` are the problems that only it can find.
    """
    problems = [*_list_problems(options, known, specific), *others]
    if problems:
        raise DeclarationError.at_caller(*problems)


def _list_problems(
    options: Mapping[str, Any], known: type[HandlerOptions] | type[FilterOptions], specific: Mapping[str, Any]
) -> Iterator[str]:
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        guesses = [repr(found[0]) for name in unknown if (found := find_similar_names(name, known.__annotations__))]
        hint = f" Did you mean {', '.join(guesses)}?" if guesses else ""
        yield f"This kind of handlers has no such options: {', '.join(unknown)}.{hint}"
    for name, value in {**options, **specific}.items():
        if value is None or name not in _CHECKS:
            continue
        check, expected = _CHECKS[name]
        if not check(value):
            yield f"{name}= must be {expected}, got {_describe(value)}."
    is_for_change = specific.get("old") is not None or specific.get("new") is not None
    if options.get("value") is not None:
        if is_for_change:
            yield "Either value= or old=/new= can be specified, not both: value= means any of old & new values."
        elif not options.get("field"):
            yield "The filter value= needs field= to know what to check."
    elif is_for_change and not options.get("field"):
        yield "The filters old=/new= need field= to know what to check."


def to_plain_numbers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the numbers of foreign types (decimals, fractions, those of numpy) into floats, to calculate with them."""
    return {name: float(value) if _is_foreign_number(name, value) else value for name, value in options.items()}


def _is_foreign_number(name: str, value: object) -> bool:
    return name in _CHECKS and _is_number(value) and not isinstance(value, int | float)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real | decimal.Decimal) and float(value) >= 0


def _is_flag(value: object) -> bool:
    return value in (True, False)  # also 0 & 1, but no strings: "no" and "false" are true


def _is_delay(value: object) -> bool:
    return callable(value) or _is_number(value)


def _is_backoff(value: object) -> bool:
    return isinstance(value, ExponentialBackoff) or _is_number(value)


def _is_field(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple | list) and all(map(_is_text, value)))


def _is_name_or_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Collection) and all(map(_is_text, value)))


def _is_metadata_filter(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and (isinstance(item, str | MetaFilterToken) or callable(item))
        for key, item in value.items()
    )


_Check = tuple[Callable[[Any], bool], str]
_TEXT: _Check = (_is_text, "a string")
_SECONDS: _Check = (_is_number, "a number of seconds (0 or more)")
_FLAG: _Check = (_is_flag, "True or False")
_METADATA: _Check = (_is_metadata_filter, "a dict with strings, functions, kopf.PRESENT, or kopf.ABSENT by strings")
_CHECKS: Mapping[str, _Check] = {
    **dict.fromkeys(("id", "group", "version", "kind", "plural", "singular", "shortcut", "category"), _TEXT),
    **dict.fromkeys(("timeout", "interval", "idle"), _SECONDS),
    **dict.fromkeys(("cancellation_backoff", "cancellation_timeout", "cancellation_polling"), _SECONDS),
    **dict.fromkeys(("labels", "annotations"), _METADATA),
    **dict.fromkeys(("deleted", "optional", "sharp", "persistent", "side_effects", "ignore_failures"), _FLAG),
    "retries": (_is_number, "a number of attempts (0 or more)"),
    "errors": (lambda value: isinstance(value, ErrorsMode), "kopf.ErrorsMode.IGNORED, or .TEMPORARY, or .PERMANENT"),
    "backoff": (_is_backoff, "a number of seconds (0 or more), or kopf.exponential(...)"),
    "initial_delay": (_is_delay, "a number of seconds (0 or more), or a function that returns it"),
    "when": (callable, "a function"),
    "field": (_is_field, "a dotted string or a sequence of strings"),
    "owns": (_is_name_or_names, "the name of a resource, or a collection of names"),
    "subresource": _TEXT,
    "operations": (lambda value: isinstance(value, Collection), "a collection of strings"),
    "registry": (lambda value: isinstance(value, OperatorRegistry), "a kopf.OperatorRegistry"),
}
"""What the values must be, except for ``None``, which is the default of all options."""


def _describe(value: object) -> str:
    """Tell the types, too, as numbers in quotes are easy to overlook."""
    hint = "; use its .total_seconds()" if isinstance(value, datetime.timedelta) else ""
    return f"{value!r} ({type(value).__name__}){hint}"
