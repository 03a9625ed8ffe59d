"""
Signatures: the check that functions of handlers accept their arguments.

Handlers and their callbacks get everything as keyword arguments, and more of these can come in the future. So, a
function fails in each call if it requires other arguments, or does not accept the rest by ``**_``. Kopf refuses it
before anything runs; but not in the decorators, because indices are arguments, too, even those declared later. Kopf
also refuses functions with wrong annotations of arguments: their code would rely on the wrong types.

Kopf checks only the called function, and not the functions that it wraps: decorators of users can add or remove
arguments. It accepts functions that have no signature, or pretend to have another one (``__signature__``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from kopf._handlers.causes import (
    ActivityCause,
    BackgroundCause,
    Cause,
    ChangingCause,
    ResourceCause,
    WatchingCause,
    WebhookCause,
)
from kopf._handlers.declarations import DeclarationError, find_function_place, put_place
from kopf._handlers.handlers import (
    ActivityHandler,
    ConversionHandler,
    DaemonHandler,
    Handler,
    IndexingHandler,
    ResourceHandler,
    SpawningHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._handlers.reconciler_conflicts import list_conflicts
from kopf._handlers.registry import OperatorRegistry
from kopf._values.similar_names import find_similar_names
from kopf._values.user_functions import get_function

Fn = Callable[..., object]

_RETRYING = frozenset({"retry", "started", "runtime"})
_SCALARS = frozenset({"str", "int", "float", "bool", "bytes"})

_TYPES = {
    "logger": "kopf.Logger",
    "resource": "kopf.Resource",
    "patch": "kopf.Patch",
    "body": "kopf.Body",
    "spec": "kopf.Spec",
    "meta": "kopf.Meta",
    "status": "kopf.Status",
    "labels": "kopf.Labels",
    "annotations": "kopf.Annotations",
    "diff": "kopf.Diff",
    "event": "kopf.RawEvent",
    "settings": "kopf.OperatorSettings",
    "started": "datetime.datetime",
    "runtime": "datetime.timedelta",
    "userinfo": "kopf.UserInfo",
    "headers": "kopf.Headers",
    "warnings": "list[str]",
    "stopped": "kopf.Stopped",
}
"""The types of arguments that are never scalars."""

_ASYNC_STOPPERS = frozenset({"Stopped", "AsyncDaemonStopperChecker"})
_SYNC_STOPPERS = frozenset({"SyncStopped", "SyncDaemonStopperChecker"})


def check_registry(registry: OperatorRegistry) -> None:
    """
    Check the functions and the callbacks of all handlers, and find conflicts of handlers.

    Raises :class:`DeclarationError` with all problems.
    """
    indices = {handler.id for handler in registry.get_indexing()}
    handlers = (*registry.activities, *registry.resources, *registry.webhooks, *registry.conversions)
    check_handlers(handlers, indices, others=list_conflicts(registry.resources))


def check_handlers(handlers: Iterable[Handler], indices: Collection[str], others: Iterable[str] = ()) -> None:
    """
    Check the functions and the callbacks of these handlers, given the names of all indices.

    Raises :class:`DeclarationError` with all problems, and with the ``others``.
    """
    found = (problem for handler in handlers for problem in _find_problems(handler, indices))
    problems = dict.fromkeys((*found, *others))
    if problems:
        raise DeclarationError(*problems)


def get_kwargs(handler: Handler, indices: Collection[str]) -> frozenset[str]:
    """Get the names of the arguments of the handler."""
    return frozenset(_get_kind(handler)[1].list_kwargs()).union(indices)


def get_callbacks_kwargs(handler: ResourceHandler, indices: Collection[str]) -> frozenset[str]:
    """Get the names of the arguments of the handler's callbacks, which know nothing of the attempt."""
    cause = ResourceCause if isinstance(handler, SpawningHandler) else _get_kind(handler)[1]
    return frozenset(cause.list_kwargs()).difference(_RETRYING).union(indices)


_KINDS: Sequence[tuple[type[Handler], str, type[Cause]]] = (
    (ActivityHandler, "handlers of activities", ActivityCause),
    (WatchingHandler, "handlers of raw events", WatchingCause),
    (IndexingHandler, "indexing functions", ResourceCause),
    (DaemonHandler, "daemons", BackgroundCause),
    (TimerHandler, "timers", BackgroundCause),
    (WebhookHandler, "admission handlers", WebhookCause),
    (Handler, "handlers of changes", ChangingCause),
)
"""The names of all kinds of handlers, and their causes."""


def _get_kind(handler: Handler) -> tuple[str, type[Cause]]:
    return next((name, cause) for kind, name, cause in _KINDS if isinstance(handler, kind))


def _find_problems(handler: Handler, indices: Collection[str]) -> Iterator[str]:
    if isinstance(handler, ConversionHandler):
        yield from _judge(handler.fn, "conversions", frozenset(), 1)
        return
    yield from _judge(handler.fn, _get_kind(handler)[0], get_kwargs(handler, indices))
    if isinstance(handler, ResourceHandler):
        uses = [("uses", item.fn, 0) for item in getattr(handler, "uses", ())]
        for option, fn, args in (*handler.list_callbacks(), *uses):
            yield from _judge(fn, f"{option}= of {handler.id!r}", get_callbacks_kwargs(handler, indices), args)


def _judge(fn: Fn, whose: str, names: frozenset[str], args: int = 0) -> Iterator[str]:
    """Find the problem of a call of the function with this number of positional and these keyword arguments."""
    signature = _get_signature(fn)
    if signature is None:
        return
    problem = _find_problem(signature, whose, names, args) or _find_wrong_type(signature, fn, names)
    if problem is not None:
        yield put_place(find_function_place(fn), f"{get_function(fn).__qualname__}() {problem}")


def _find_problem(signature: inspect.Signature, whose: str, names: frozenset[str], args: int) -> str | None:
    parameters = list(signature.parameters.values())
    positional = [item for item in parameters if item.kind in _POSITIONAL]
    named = [item for item in parameters if item.kind in _NAMED and item not in positional[:args]]
    kinds = {item.kind for item in parameters}
    if len(positional) < args and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"does not take the value as its first argument for {whose}: add one, e.g. 'value'."
    for item in positional[:args]:
        if item.name in names and item.kind is item.POSITIONAL_OR_KEYWORD:
            return f"gets the value for {whose} as its first argument, which cannot be named {item.name!r}: rename it."
    for item in positional[args:]:
        if item.default is item.empty and item.kind is item.POSITIONAL_ONLY:
            return f"requires {item.name!r} to be positional, but it is called by keywords for {whose}. Remove the '/'."
    for item in named:
        if item.default is item.empty and item.name not in names:
            guesses = find_similar_names(item.name, names - {other.name for other in named})
            hint = f"Did you mean {guesses[0]!r}?" if guesses else "Remove it, or give it a default value."
            return f"requires {item.name!r}, but there is no such argument for {whose}. {hint}"
    if inspect.Parameter.VAR_KEYWORD not in kinds and names - {item.name for item in named}:
        return f"does not accept all arguments for {whose}, present and future: add '**_' to its parameters."
    return None


def _find_wrong_type(signature: inspect.Signature, fn: Fn, names: frozenset[str]) -> str | None:
    """Find a known argument with a surely wrong annotation. Annotations can be strings."""
    is_async = inspect.iscoroutinefunction(get_function(fn))
    for name, item in signature.parameters.items():
        text = item.annotation if isinstance(item.annotation, str) else getattr(item.annotation, "__name__", "")
        if name not in names or name not in _TYPES:
            continue
        wrong, right = _SCALARS, _TYPES[name]
        if name == "stopped":
            wrong |= _SYNC_STOPPERS if is_async else _ASYNC_STOPPERS
            right = right if is_async else "kopf.SyncStopped"
        if text.removeprefix("kopf.") in wrong:
            return f"has {name!r} annotated as {text}, but it is {right}: annotate it so, or not at all."
    return None


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _get_signature(fn: Fn) -> inspect.Signature | None:
    function = get_function(fn)
    if not inspect.isfunction(function) or hasattr(function, "__signature__"):
        return None
    try:
        return inspect.signature(function if isinstance(fn, staticmethod) else fn, follow_wrapped=False)
    except (TypeError, ValueError):  # an object that calls the function in its own way
        return None
