"""
The options of the decorators: their names, types, texts, and checks.

The decorators themselves check the options. So, Kopf refuses a wrong option in its line, and before anything runs.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import inspect
import numbers
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar, cast, get_type_hints

from kopf._handlers.causes import Cause
from kopf._handlers.declarations import DeclarationError
from kopf._handlers.filter_criteria import MetaFilter, MetaFilterToken, ValueFilter, WhenFilter
from kopf._handlers.handler_errors import ErrorsMode
from kopf._handlers.handlers import CALLBACKS, Reference, is_async
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
    """Options of handlers with retries."""

    errors: ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | ExponentialBackoff | None


class ActivityOptions(RetryOptions, total=False):
    """Options of handlers of the operator's activities."""

    registry: OperatorRegistry | None


class FilterOptions(TypedDict, total=False):
    """Options to select objects."""

    labels: Mapping[str, MetaFilter] | None
    annotations: Mapping[str, MetaFilter] | None
    when: WhenFilter | None
    field: FieldSpec
    value: ValueFilter


class SelectorOptions(TypedDict, total=False):
    """Options to name the resource, instead of positional arguments or with them."""

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
    """Options of all handlers of changes."""

    registry: OperatorRegistry | None


class DeleteOptions(CreateOptions, total=False):
    """Options of :func:`delete`."""

    optional: bool | None


class OwnerOptions(CreateOptions, total=False):
    """Options of handlers that changes of owned objects call, too."""

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
    """Options of :func:`validate` & :func:`mutate`. There are no retries, as the API server waits for the answer."""

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
    "id": """the name of the handler in logs, progress records, and results; by default, the name of
      the function""",
    "param": "any value, which the function gets as the keyword argument ``param``",
    "errors": """a ``kopf.ErrorsMode`` for all errors but ``kopf.TemporaryError`` and
      ``kopf.PermanentError``; by default ``TEMPORARY``, for indices ``IGNORED``, for probes
      ``PERMANENT``""",
    "timeout": """the time for all attempts together, in seconds since the first one; by default,
      unlimited""",
    "retries": "the maximal number of attempts, the first one included; by default, unlimited",
    "backoff": """the delay before a retry, in seconds, or ``kopf.exponential(…)``; by default,
      ``settings.execution.default_backoff``, i.e. 60""",
    "labels": """select objects by labels: a dict of their names with strings, ``kopf.PRESENT``,
      ``kopf.ABSENT``, or functions of the value""",
    "annotations": "select objects by annotations, in the same way as by ``labels``",
    "when": """select objects by a function of the keyword arguments of the handler, which returns true
      or false""",
    "field": """select objects with this field, or changes of this field: ``'spec.size'`` or
      ``('spec', 'size')``""",
    "value": """select by the value of the ``field``: any value, ``kopf.PRESENT``, ``kopf.ABSENT``, or
      a function of it""",
    "old": """select by the value of the ``field`` before the change, in the same way as by ``value``,
      but not with it""",
    "new": """select by the value of the ``field`` after the change, in the same way as by ``value``,
      but not with it""",
    "group": "the API group of the resource, e.g. ``apps``; by default, any group",
    "version": """the API version of the resource, e.g. ``v1``; by default, the version that the
      cluster prefers""",
    "kind": "the kind of the resource, e.g. ``Pod``",
    "plural": "the plural name of the resource, e.g. ``pods``",
    "singular": "the singular name of the resource, e.g. ``pod``",
    "shortcut": "the short name of the resource, e.g. ``po``",
    "category": "the category of several resources, e.g. ``all``",
    "registry": """the ``kopf.OperatorRegistry`` for the handler; by default,
      ``kopf.get_default_registry()``""",
    "deleted": "``True`` to call the handler also for objects in deletion; by default, ``False``",
    "optional": """``True`` to add no finalizer, so that deletions do not wait for the handler; by
      default, ``False``""",
    "owns": """the resources of owned objects, as one name or a collection: their changes call the
      handler, too""",
    "initial_delay": """the delay before the first run, in seconds, or a function that returns it; by
      default, 0""",
    "uses": """references to other objects, one ``kopf.ref(…)`` or a collection: their changes call the
      handler, too""",
    "conditions": """whether to set the conditions ``Ready``, ``Reconciling``, and ``Stalled`` by the
      children of the object; by default, only if the status of its model has ``kopf.ConditionList``""",
    "interval": """the time between two runs, in seconds; by default, reconcilers run on changes only,
      and timers run once, or once after each time of ``idle``""",
    "sharp": """``True`` to measure the ``interval`` between the starts of two runs; by default, from
      the end of a run""",
    "idle": "the time without changes of the object before a run, in seconds; by default, 0",
    "cancellation_backoff": """the time to stop on request before the cancellation, in seconds; by
      default, 0""",
    "cancellation_timeout": """the time to stop after the cancellation, in seconds; by default, Kopf
      never cancels""",
    "cancellation_polling": """the time between log lines about a daemon that does not stop, in
      seconds; by default, ``settings.background.cancellation_polling``, i.e. 60""",
    "operation": """the operation to review: ``CREATE``, ``UPDATE``, ``DELETE``, ``CONNECT``; by
      default, all of these, but mutating handlers are not called for deletions""",
    "operations": "a collection of operations to review, instead of one ``operation``",
    "subresource": """the subresource to review, e.g. ``status``, or ``*`` for all; by default, the
      object itself""",
    "persistent": "``True`` to block changes also while no operator runs; by default, ``False``",
    "side_effects": """``True`` if the handler changes anything else, except in dry runs; by default,
      ``False``""",
    "ignore_failures": """``True`` to admit the change if the handler fails or is unreachable; by
      default, ``False``""",
}
"""The effects of the options, for people; broken into lines as in a docstring."""

_TEXT_OF_NAMES = """
    The positional arguments name the resource: ``(name)``, ``(group, name)``, ``(group/version, name)``, or ``(group,
    version, name)``. The name is a plural, singular, or short name, or a kind; or ``name.group``; or
    ``name.version.group``; or ``kopf.EVERYTHING``; or a function that accepts or rejects a :class:`kopf.Resource`. A
    subclass of :class:`kopf.CustomResource` stands for all of these.
"""


class _DecoratorSignature(inspect.Signature):
    """The signature of a decorator with all its options; it lists them on demand, as operators do not need them."""

    __slots__ = ("_fn", "_options", "_required")

    def __init__(self, fn: Callable[..., Any], options: _Options, required: str | None) -> None:
        super().__init__(return_annotation=fn.__annotations__["return"])
        self._fn = fn
        self._options = options
        self._required = required

    @property
    def parameters(self) -> MappingProxyType[str, inspect.Parameter]:
        parameters = dict(inspect.signature(self._fn).parameters)
        del parameters["options"]
        for name, hint in get_type_hints(self._options).items():
            default = inspect.Parameter.empty if name == self._required else None
            keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            parameters[name] = keyword
        return MappingProxyType(parameters)

    def replace(self, **changes: Any) -> Any:
        plain = inspect.Signature([*self.parameters.values()], return_annotation=self.return_annotation)
        return plain.replace(**changes)


def takes_options(
    options: _Options,
    cause: type[Cause],
    *,
    required: str | None = None,
    find_problems: Callable[[Any], Iterable[str]] = lambda given: (),
) -> Callable[[Fn], Fn]:
    """
    Let a decorator of handlers check its options, and show them in its signature and docstring.

    The decorator gets only the given options, with plain numbers and flags. It raises one :class:`DeclarationError`
    for all options that are unknown or wrong. ``cause`` is the cause of its handlers; ``find_problems`` adds problems
    that only this decorator can have.
    """

    def decorate(fn: Fn) -> Fn:
        own = fn.__code__.co_varnames[: fn.__code__.co_argcount]

        @functools.wraps(fn)
        def declare(*args: Any, **given: Any) -> Any:
            named = {name: given.pop(name) for name in own if name in given}
            problems = [*_list_problems(given, options), *find_problems(given)]
            if problems:
                raise DeclarationError.at_caller(*problems)
            simple = {name: _simplify(name, value) for name, value in given.items() if value is not None}
            return fn(*args, **named, **simple)

        setattr(declare, "__signature__", _DecoratorSignature(fn, options, required))  # noqa: B010
        declare.__doc__ = f"{fn.__doc__}{_describe_usage(options, cause)}"
        return cast(Fn, declare)

    return decorate


def _describe_usage(options: _Options, cause: type[Cause]) -> str:
    """Describe the usage of a decorator in its docstring."""
    names = options.__annotations__
    listed = [f"``{name}``" for name in cause.list_kwargs()]
    kwargs = ",\n    ".join(", ".join(listed[start : start + 8]) for start in range(0, len(listed), 8))
    texts = "\n".join(f"    - ``{name}``: {_TEXTS[name]}." for name in names)
    return f"""{_TEXT_OF_NAMES if "plural" in names else ""}
    The function gets all indices by their names, and these keyword arguments:
    {kwargs}.
    It must accept more of them in the future: by ``**_`` or ``**kwargs``.

    Raises :class:`kopf.DeclarationError` if any argument is wrong; the message names the line and all problems.

    Options, all of which are ``None`` by default:

{texts}
    """


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
    for name, value in options.items():
        callbacks = value.values() if isinstance(value, Mapping) else [value]
        if name in CALLBACKS and any(map(is_async, callbacks)):
            yield f"{name}= must be synchronous: Kopf does not await the results of coroutine functions there."
    is_for_change = options.get("old") is not None or options.get("new") is not None
    if options.get("value") is not None:
        if is_for_change:
            yield "Either value= or old=/new= can be specified, not both: value= means any of old & new values."
        elif not options.get("field"):
            yield "The filter value= needs field= to know what to check."
    elif is_for_change and not options.get("field"):
        yield "The filters old=/new= need field= to know what to check."


def _simplify(name: str, value: Any) -> Any:
    """Turn numbers of foreign types (decimals, fractions, numpy types) into floats, and flags into booleans."""
    check, _ = _CHECKS.get(name, (None, ""))
    if check is _is_flag:
        return bool(value)
    is_foreign_number = check is not None and _is_number(value) and not isinstance(value, int | float)
    return float(value) if is_foreign_number else value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real | decimal.Decimal) and float(value) >= 0


def _is_flag(value: object) -> bool:
    return value in (True, False)  # also 0 & 1, but no strings: "no" and "false" are true


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
    "backoff": (
        lambda value: isinstance(value, ExponentialBackoff) or _is_number(value),
        "a number of seconds (0 or more), or kopf.exponential(...)",
    ),
    "initial_delay": (
        lambda value: callable(value) or _is_number(value),
        "a number of seconds (0 or more), or a function that returns it",
    ),
    "when": (callable, "a function"),
    "field": (_is_field, "a dotted string or a sequence of strings"),
    "owns": (_is_name_or_names, "the name of a resource, or a collection of names"),
    "uses": (_is_reference_or_references, "kopf.ref(…), or a collection of these"),
    "subresource": _TEXT,
    "operations": (lambda value: isinstance(value, Collection), "a collection of strings"),
    "registry": (lambda value: isinstance(value, OperatorRegistry), "a kopf.OperatorRegistry"),
}
"""The requirements for values. ``None`` is always accepted: it is the default of all options."""


def _describe(value: object) -> str:
    """Show the type, too: numbers in quotes are easy to overlook."""
    hint = "; use its .total_seconds()" if isinstance(value, datetime.timedelta) else ""
    return f"{value!r} ({type(value).__name__}){hint}"
