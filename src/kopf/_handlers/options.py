"""
The options of the decorators: their names, types, and texts, and the checks of what is given for them.

The checks are made in the decorators, so that a wrong option is refused in its line, not when the handler is needed.
"""

from __future__ import annotations

import datetime
import decimal
import inspect
import numbers
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar, get_type_hints

from kopf._handlers.criteria import MetaFilter, MetaFilterToken, ValueFilter, WhenFilter
from kopf._handlers.declarations import DeclarationError
from kopf._handlers.handler_errors import ErrorsMode
from kopf._handlers.handlers import Reference
from kopf._handlers.registry import OperatorRegistry
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.fields import FieldSpec
from kopf._values.reasons import Operation
from kopf._values.selectors import ResourceModel
from kopf._values.similar_names import find_similar_names

Fn = TypeVar("Fn", bound=Callable[..., Any])


class HandlerOptions(TypedDict, total=False):
    """Options of all handlers."""

    id: str | None
    param: Any


class RetryOptions(HandlerOptions, total=False):
    """Options of the handlers that are retried when they fail."""

    errors: ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | ExponentialBackoff | None


class ActivityOptions(RetryOptions, total=False):
    """Options of the handlers of the operator's own life."""

    registry: OperatorRegistry | None


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


class DeleteOptions(CreateOptions, total=False):
    """Options of :func:`delete`."""

    optional: bool | None


class OwnerOptions(CreateOptions, total=False):
    """Options of those handlers of changes that can be called because of the owned objects, too."""

    owns: str | ResourceModel | Collection[str | ResourceModel] | None


class ResumeOptions(OwnerOptions, total=False):
    """Options of :func:`resume`."""

    deleted: bool | None


class UpdateOptions(OwnerOptions, total=False):
    """Options of :func:`update` & :func:`field`."""

    old: ValueFilter
    new: ValueFilter


class ReconcileOptions(OwnerOptions, total=False):
    """Options of :func:`reconcile`."""

    uses: Reference | Collection[Reference] | None
    interval: float | None
    conditions: bool | None


class DaemonOptions(CreateOptions, total=False):
    """Options of :func:`daemon`."""

    initial_delay: float | Callable[..., float] | None
    cancellation_backoff: float | None
    cancellation_timeout: float | None
    cancellation_polling: float | None
    optional: bool | None


class TimerOptions(CreateOptions, total=False):
    """Options of :func:`timer`."""

    initial_delay: float | Callable[..., float] | None
    interval: float | None
    sharp: bool | None
    owns: str | Collection[str] | None
    idle: float | None
    optional: bool | None


class WebhookOptions(EventOptions, total=False):
    """Options of :func:`validate` & :func:`mutate`. There are no retries: somebody waits for the answer."""

    operation: Operation | None
    operations: Collection[Operation] | None
    subresource: str | None
    persistent: bool | None
    side_effects: bool | None
    ignore_failures: bool | None


class SubhandlerOptions(RetryOptions, FilterOptions, total=False):
    """Options of :func:`subhandler` & :func:`register`."""

    old: ValueFilter
    new: ValueFilter


_Options = type[HandlerOptions] | type[FilterOptions]

_TEXTS: Mapping[str, str] = {
    "id": "the name in the logs and in the persisted state; by default, that of the function",
    "param": "any value to be passed to the handler as the kwarg ``param``",
    "errors": "how arbitrary exceptions are treated; by default, as ``TEMPORARY``",
    "timeout": "seconds for all attempts since the first one; by default, unlimited",
    "retries": "how many attempts are made; by default, unlimited",
    "backoff": "seconds to the retry after errors, or ``kopf.exponential(…)``; by default, as in the settings: 60",
    "labels": "the labels that the object must have: strings, PRESENT, ABSENT, or functions, by the names",
    "annotations": "the annotations that the object must have; the same",
    "when": "a function of the kwargs that tells if the object is for the handler",
    "field": "the field to look at: ``'spec.size'`` or ``('spec', 'size')``",
    "value": "the value of the field: any value, PRESENT, ABSENT, or a function of it",
    "old": "the value of the field before the change; the same, and instead of ``value``",
    "new": "the value of the field after the change; the same, and instead of ``value``",
    "group": "the API group of the resource; by default, any",
    "version": "the version of the resource; by default, the one that the cluster prefers",
    "kind": "the kind of the resource, e.g. ``Pod``",
    "plural": "the plural name of the resource, e.g. ``pods``",
    "singular": "the singular name of the resource, e.g. ``pod``",
    "shortcut": "the short name of the resource, e.g. ``po``",
    "category": "the category of the resources, e.g. ``all``",
    "registry": "where to register; by default, in the default registry",
    "deleted": "whether it is also for objects that are being deleted; by default, no",
    "optional": "whether the object can be deleted without waiting for it, with no finalizer; by default, no",
    "owns": "names of resources that the object owns: the handler is also called when an owned object has changed",
    "initial_delay": "seconds to the first run, or a function of the kwargs that returns them; by default, 0",
    "uses": "what the object refers to, by ``kopf.ref(…)``: the handler is also called when that has changed",
    "conditions": (
        "whether to set ``Ready``, ``Reconciling``, ``Stalled`` of the object by its children; by default, if its "
        "model has ``kopf.ConditionList`` in the status"
    ),
    "interval": "seconds between two runs; by default, timers run once, or once after each time of ``idle``",
    "sharp": "whether the interval is between the beginnings of the runs, not after their ends; by default, no",
    "idle": "seconds for which the object must stay unchanged before a run; by default, 0",
    "cancellation_backoff": "seconds to exit on request, until it is cancelled; by default, 0",
    "cancellation_timeout": "seconds to exit after that, until it is abandoned; by default, it is never cancelled",
    "cancellation_polling": "seconds between the reminders of it in the logs; by default, as in the settings: 60",
    "operation": "what to check: ``CREATE``, ``UPDATE``, ``DELETE``, ``CONNECT``; by default, all",
    "operations": "the same for several operations",
    "subresource": "the subresource to check, e.g. ``status``, ``*`` for all; by default, the object itself",
    "persistent": "whether changes are blocked also while no operator runs; by default, no",
    "side_effects": "whether it changes anything else (except in dry runs); by default, no",
    "ignore_failures": "whether changes are admitted if it fails or cannot be reached; by default, no",
}
"""What the options are, for people; all of them are ``None`` by default."""


class _DecoratorSignature(inspect.Signature):
    """The signature of a decorator with all its options; they are listed when somebody looks: operators do not."""

    __slots__ = ("_fn", "_options", "_required")

    def __init__(self, fn: Callable[..., Any], options: _Options, required: str | None) -> None:
        super().__init__(return_annotation=fn.__annotations__["return"])
        self._fn = fn
        self._options = options
        self._required = required

    @property
    def parameters(self) -> MappingProxyType[str, inspect.Parameter]:
        code, types = self._fn.__code__, self._fn.__annotations__
        is_variable = code.co_flags & inspect.CO_VARARGS
        kind = inspect.Parameter.VAR_POSITIONAL if is_variable else inspect.Parameter.POSITIONAL_OR_KEYWORD
        positional = code.co_varnames[: code.co_argcount + bool(is_variable)]
        parameters = {name: inspect.Parameter(name, kind, annotation=types[name]) for name in positional}
        for name, hint in get_type_hints(self._options).items():
            default = inspect.Parameter.empty if name == self._required else None
            keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            parameters[name] = keyword
        return MappingProxyType(parameters)

    def replace(self, **changes: Any) -> Any:
        plain = inspect.Signature([*self.parameters.values()], return_annotation=self.return_annotation)
        return plain.replace(**changes)


def show_options(options: _Options, *, required: str | None = None) -> Callable[[Fn], Fn]:
    """Show the options in the signature and in the documentation of a decorator, which takes them by ``**``."""

    def decorate(fn: Fn) -> Fn:
        fn.__signature__ = _DecoratorSignature(fn, options, required)  # type: ignore[attr-defined]
        texts = "\n".join(f"    - ``{name}``: {_TEXTS[name]}." for name in options.__annotations__)
        fn.__doc__ = f"{fn.__doc__}\n\n    Options, all of which are ``None`` by default:\n\n{texts}"
        return fn

    return decorate


def check_options(
    options: Mapping[str, Any],
    known: _Options,
    *,
    others: Iterable[str] = (),
) -> None:
    """
    Raise one :class:`DeclarationError` for all options that are unknown to this kind of handlers, or make no sense.

    ``others`` are the problems that only this decorator can find.
    """
    problems = [*_list_problems(options, known), *others]
    if problems:
        raise DeclarationError.at_caller(*problems)


def _list_problems(options: Mapping[str, Any], known: _Options) -> Iterator[str]:
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        guesses = [repr(found[0]) for name in unknown if (found := find_similar_names(name, known.__annotations__))]
        hint = f" Did you mean {', '.join(guesses)}?" if guesses else ""
        yield f"This kind of handlers has no such options: {', '.join(unknown)}.{hint}"
    for name, value in options.items():
        if value is None or name not in _CHECKS:
            continue
        check, expected = _CHECKS[name]
        if not check(value):
            yield f"{name}= must be {expected}, got {_describe(value)}."
    is_for_change = options.get("old") is not None or options.get("new") is not None
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
    names = value if isinstance(value, Collection) and not isinstance(value, str) else (value,)
    return all(isinstance(item, str | ResourceModel) for item in names)


def _is_reference_or_references(value: object) -> bool:
    items = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return all(isinstance(item, Reference) for item in items)


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
    **dict.fromkeys(
        ("conditions", "deleted", "optional", "sharp", "persistent", "side_effects", "ignore_failures"), _FLAG
    ),
    "retries": (_is_number, "a number of attempts (0 or more)"),
    "errors": (lambda value: isinstance(value, ErrorsMode), "kopf.ErrorsMode.IGNORED, or .TEMPORARY, or .PERMANENT"),
    "backoff": (_is_backoff, "a number of seconds (0 or more), or kopf.exponential(...)"),
    "initial_delay": (_is_delay, "a number of seconds (0 or more), or a function that returns it"),
    "when": (callable, "a function"),
    "field": (_is_field, "a dotted string or a sequence of strings"),
    "owns": (_is_name_or_names, "the name of a resource, or a collection of names"),
    "uses": (_is_reference_or_references, "kopf.ref(…), or a collection of these"),
    "subresource": _TEXT,
    "operations": (lambda value: isinstance(value, Collection), "a collection of strings"),
    "registry": (lambda value: isinstance(value, OperatorRegistry), "a kopf.OperatorRegistry"),
}
"""What the values must be, except for ``None``, which is the default of all options."""


def _describe(value: object) -> str:
    """Tell the types, too, as numbers in quotes are easy to overlook."""
    hint = "; use its .total_seconds()" if isinstance(value, datetime.timedelta) else ""
    return f"{value!r} ({type(value).__name__}){hint}"
