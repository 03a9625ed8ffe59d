"""
The decorators of handlers.

>>> import kopf
>>>
>>> @kopf.on.create('kopfexamples')
... def create_fn(spec, **_):
...     pass

All decorators return the function unchanged. You can decorate it again, or call it directly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar, Unpack

from kopf._handlers.causes import (
    ActivityCause,
    BackgroundCause,
    ChangingCause,
    ResourceCause,
    WatchingCause,
    WebhookCause,
)
from kopf._handlers.declarations import DeclarationError, check_function
from kopf._handlers.handlers import (
    ActivityHandler,
    ChangingHandler,
    ConversionHandler,
    DaemonHandler,
    IndexingHandler,
    ReconcilingHandler,
    Reference,
    ResourceHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._handlers.options import (
    ActivityOptions,
    CreateOptions,
    DaemonOptions,
    DeleteOptions,
    EventOptions,
    OwnerOptions,
    ReconcileOptions,
    ResumeOptions,
    SelectorOptions,
    SubhandlerOptions,
    TimerOptions,
    UpdateOptions,
    WebhookOptions,
    takes_options,
)
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._handlers.subhandlers import declare_subhandler
from kopf._values.fields import parse_field
from kopf._values.ids import HandlerId, get_callable_id, make_handler_id
from kopf._values.reasons import Activity, Operation, Reason, WebhookType
from kopf._values.selectors import NameSpec, ResourceModel, Selector

__all__ = [
    "cleanup",
    "convert",
    "create",
    "daemon",
    "delete",
    "event",
    "field",
    "index",
    "login",
    "mutate",
    "probe",
    "reconcile",
    "register",
    "resume",
    "startup",
    "subhandler",
    "timer",
    "update",
    "validate",
]

Fn = TypeVar("Fn", bound=Callable[..., Any])
Name = NameSpec


@takes_options(ActivityOptions, ActivityCause)
def startup(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of the start of the operator.

    Kopf calls it before anything else, e.g. to change the ``settings``. If it fails for good, the operator does not
    start. The result is ignored.
    """
    return _declare_activity(Activity.STARTUP, **options)


@takes_options(ActivityOptions, ActivityCause)
def cleanup(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of the exit of the operator.

    Kopf calls it when all other work has stopped. The result is ignored.
    """
    return _declare_activity(Activity.CLEANUP, **options)


@takes_options(ActivityOptions, ActivityCause)
def login(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler that returns credentials for the API server.

    Kopf calls it at the start, and again when the credentials expire or the server refuses them. It returns
    :class:`kopf.ConnectionInfo`, or ``None`` if it has no credentials. With such handlers, the operator uses no other
    way to log in.
    """
    return _declare_activity(Activity.AUTHENTICATION, **options)


@takes_options(ActivityOptions, ActivityCause)
def probe(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a probe of the operator's health.

    Kopf calls it when the health endpoint (``--liveness``) gets a request. The response contains the result as JSON,
    by the id of the handler. If the handler fails, the operator is unhealthy.

    Unlike other handlers, a probe is not retried after arbitrary exceptions, because the client waits for the
    response. To retry it, use ``errors=kopf.ErrorsMode.TEMPORARY``.
    """
    return _declare_activity(Activity.PROBE, **options)


@takes_options(EventOptions, WatchingCause)
def event(*name: Name, **options: Unpack[EventOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of raw events of the watch stream.

    Kopf calls it for each event of each object, and stores no progress on the object. It is never retried: errors
    only go to the log. The result goes to the status of the object, by the id of the handler.
    """
    return _declare(WatchingHandler, name, options)


@takes_options(OwnerOptions, ChangingCause)
def create(*name: Name, **options: Unpack[OwnerOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of new objects.

    Kopf calls it when an object is created, or when the operator sees an existing object for the first time. The
    result goes to the status of the object, by the id of the handler.
    """
    return _declare(ChangingHandler, name, options, reason=Reason.CREATE)


@takes_options(ResumeOptions, ChangingCause)
def resume(*name: Name, **options: Unpack[ResumeOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of objects that exist when the operator starts.

    Each operator process calls it once for each object. The result goes to the status of the object, by the id of the
    handler.
    """
    return _declare(ChangingHandler, name, options, reason=None, initial=True)


@takes_options(UpdateOptions, ChangingCause)
def update(*name: Name, **options: Unpack[UpdateOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of updates of objects.

    Kopf calls it when the spec, labels, annotations, or other essential parts of an object have changed; with
    ``field``, only when this field has changed. The result goes to the status of the object, by the id of the handler.
    """
    return _declare(ChangingHandler, name, options, reason=Reason.UPDATE, field_needs_change=True)


@takes_options(DeleteOptions, ChangingCause)
def delete(*name: Name, **options: Unpack[DeleteOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of deletions of objects.

    Kopf calls it when the deletion of an object is requested. A finalizer holds the object until the handler succeeds
    or fails for good. With ``optional``, Kopf calls the handler only while something else in the same operator holds
    the object: another deletion handler, a daemon, or a timer.
    """
    return _declare(ChangingHandler, name, options, reason=Reason.DELETE, requires_finalizer=True)


def _find_missing_field(options: UpdateOptions) -> Iterator[str]:
    if not options.get("field"):
        yield "The field is not specified: @kopf.on.field(…, field='spec.something')."


@takes_options(UpdateOptions, ChangingCause, required="field", find_problems=_find_missing_field)
def field(*name: Name, **options: Unpack[UpdateOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a handler of one field of objects.

    Kopf calls it when the field is added, changed, or removed: also for new objects with this field. The option
    ``field`` is mandatory. The result goes to the status of the object, by the id of the handler.
    """
    return _declare(ChangingHandler, name, options, reason=None, field_needs_change=True)


@takes_options(ReconcileOptions, ChangingCause)
def reconcile(*name: Name, **options: Unpack[ReconcileOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a reconciler: a handler that yields (or returns) the desired children of an object.

    Kopf calls it when the object or one of its children changes, when the operator starts, and after each
    ``interval``. It applies each yielded child as :func:`kopf.apply` does; the value of the ``yield`` expression is
    the child in its current state. Kopf deletes children that the reconciler yielded before but does not yield now.
    Name the resources of all children in ``owns``.
    """
    from kopf._kits.reconciling import make_call  # most operators have no reconcilers

    uses = options.pop("uses", ())
    references = (uses,) if isinstance(uses, Reference) else tuple(uses or ())
    return _declare(ReconcilingHandler, name, options, make_call=make_call, reason=None, uses=references)


@takes_options(CreateOptions, ResourceCause)
def index(*name: Name, **options: Unpack[CreateOptions]) -> Callable[[Fn], Fn]:
    """
    Declare an indexing function.

    Kopf calls it for each object, again after each change. It returns a dict of keys and values for the index, or
    another value for the key ``None``, or ``None`` to leave the object out.

    All other handlers get the index as a keyword argument with the id of this handler: by default, the plain name of
    the function, without its classes.
    """
    return _declare(IndexingHandler, name, options, is_kwarg=True)


_OPERATIONS: frozenset[Operation] = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


def _find_webhook_problems(options: WebhookOptions) -> Iterator[str]:
    operation, operations = options.get("operation"), options.get("operations")
    if operation is not None and operations is not None:
        yield "Either operation= or operations= can be specified, not both."
    if isinstance(operations, str):
        yield f"Several operations must be in a list or a set, got {operations!r}; for one, use operation=."
    else:
        several = operations if isinstance(operations, Collection) else ()
        requested = {*map(str, several), *(() if operation is None else (str(operation),))}
        if "*" not in requested and (unknown := sorted(requested - _OPERATIONS)):
            yield f"No such operations: {', '.join(unknown)}. They can be: {', '.join(sorted(_OPERATIONS))}."
    if options.get("subresource") == "":
        yield "The subresource cannot be empty: omit it for the object itself, or use '*' for everything."


@takes_options(WebhookOptions, WebhookCause, find_problems=_find_webhook_problems)
def validate(*name: Name, **options: Unpack[WebhookOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a validating admission handler.

    The API server asks it before it makes a change. To deny the change, raise :class:`kopf.AdmissionError`; all other
    errors deny it, too. To warn the user, append strings to ``warnings``. The result is ignored.
    """
    return _declare_webhook(WebhookType.VALIDATING, name, options)


@takes_options(WebhookOptions, WebhookCause, find_problems=_find_webhook_problems)
def mutate(*name: Name, **options: Unpack[WebhookOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a mutating admission handler.

    The API server asks it before it makes a change. The ``patch`` modifies the object of the change. To deny the
    change, raise :class:`kopf.AdmissionError`; all other errors deny it, too. To warn the user, append strings to
    ``warnings``. The result is ignored.
    """
    return _declare_webhook(WebhookType.MUTATING, name, options)


def convert(
    resource: str | ResourceModel, source: str, target: str, *, registry: OperatorRegistry | None = None
) -> Callable[[Fn], Fn]:
    """
    Declare a conversion of objects from one version of their definition to another version.

    The function gets an object of the version ``source`` as a dict, its only argument. It returns the object in the
    version ``target``; it can modify and return the same dict. Of the metadata, it can change only the labels and the
    annotations. Kopf calls several functions in turn if there is no function for a pair of versions.

    :param resource: the name of the definition, e.g. ``"widgets.example.com"``; or a :class:`kopf.CustomResource`.
    :param source: the version of the argument, e.g. ``"v1beta1"``.
    :param target: the version of the result, e.g. ``"v1"``.
    :param registry: the registry for the function; by default, :func:`kopf.get_default_registry`.
    :raises kopf.DeclarationError: if any argument is wrong, or if the same conversion is declared twice.
    """
    if isinstance(resource, str):
        definition = resource
    else:
        group, _, plural = resource.get_resource_names()
        definition = f"{plural}.{group}"
    id = HandlerId(f"{definition}/{source}-{target}")
    if definition.count(".") < 2 or "/" in definition:
        raise DeclarationError.at_caller(
            f"Name the resource as in 'kubectl get crd', e.g. 'widgets.example.com', got {definition!r}."
        )
    if source == target or "/" in f"{source}{target}":
        raise DeclarationError.at_caller(f"Name two versions, e.g. 'v1beta1', 'v1', got {source!r}, {target!r}.")

    def decorate(fn: Fn) -> Fn:
        check_function(fn)
        into = _get_registry(registry)
        if any(handler.id == id for handler in into.conversions):
            raise DeclarationError.at_caller(
                f"The conversion of {definition} from {source} to {target} is declared twice."
            )
        into.append(ConversionHandler(id=id, fn=fn, definition=definition, source=source, target=target))
        return fn

    return decorate


@takes_options(DaemonOptions, BackgroundCause)
def daemon(*name: Name, **options: Unpack[DaemonOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a daemon: a long-running handler of each object.

    Kopf starts it when the object appears, and stops it when the object is deleted or no longer matches the filters,
    and when the operator exits or pauses. The function must return when ``stopped`` becomes true. If it returns
    earlier, Kopf does not start it again until the operator restarts. A finalizer holds the object until the daemon
    has stopped, unless ``optional``. The result goes to the status of the object, by the id of the handler.
    """
    return _declare(DaemonHandler, name, options)


@takes_options(TimerOptions, BackgroundCause)
def timer(*name: Name, **options: Unpack[TimerOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a timer: a handler that runs again and again for each object.

    Kopf starts it when the object appears, and stops it when the object is deleted or no longer matches the filters.
    After changes of owned objects (``owns``), the next run is early. A finalizer holds the object until a run has
    finished, unless ``optional``. The result goes to the status of the object, by the id of the handler.
    """
    return _declare(TimerHandler, name, options)


@takes_options(SubhandlerOptions, ChangingCause)
def subhandler(**options: Unpack[SubhandlerOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a sub-handler of the running handler.

    Kopf calls the sub-handlers after the function of their parent. The parent is finished when all of its sub-handlers
    are. Until then, Kopf calls the parent again and again, and it must declare the same sub-handlers each time.

    Raises :class:`LookupError` outside of handlers of changes.
    """

    def decorate(fn: Fn) -> Fn:
        declare_subhandler(fn, **options)
        return fn

    return decorate


@takes_options(SubhandlerOptions, ChangingCause)
def register(fn: Fn, **options: Unpack[SubhandlerOptions]) -> Fn:
    """
    Declare the function ``fn`` as a sub-handler of the running handler, and return it.

    It is the same as :func:`kopf.subhandler`, but as a call instead of a decorator.

    Raises :class:`LookupError` outside of handlers of changes.
    """
    declare_subhandler(fn, **options)
    return fn


def _declare_activity(
    activity: Activity, *, id: str | None = None, registry: OperatorRegistry | None = None, **options: Any
) -> Callable[[Fn], Fn]:
    def decorate(fn: Fn) -> Fn:
        check_function(fn)
        handler = ActivityHandler(id=make_handler_id(fn, id), fn=fn, activity=activity, **options)
        _get_registry(registry).append(handler)
        return fn

    return decorate


def _declare(
    cls: type[ResourceHandler],
    name: tuple[Name, ...],
    options: EventOptions | CreateOptions | WebhookOptions,
    *,
    is_kwarg: bool = False,
    make_call: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    **specifics: Any,
) -> Callable[[Fn], Fn]:
    generic: dict[str, Any] = {**options}
    if name and callable(name[0]) and not isinstance(name[0], type) and _looks_like_handler(name[0]):
        raise DeclarationError.at_caller(
            "The decorator is used without arguments: name the resource, e.g. @kopf.on.create('pods')."
        )
    selector = _make_selector(
        name, {key: generic.pop(key) for key in SelectorOptions.__annotations__ if key in generic}
    )
    registry = generic.pop("registry", None)
    id = generic.pop("id", None)
    path = parse_field(generic.pop("field", None))
    if generic.pop("optional", False):
        specifics["requires_finalizer"] = False
    if (owns := generic.pop("owns", None)) is not None:
        owned = [owns] if isinstance(owns, str | ResourceModel) else owns
        specifics["owns"] = tuple(_make_selector((item,), {}) for item in owned)

    def decorate(fn: Fn) -> Fn:
        check_function(fn)
        handler_id = (
            HandlerId(id or get_callable_id(fn).rpartition(".")[-1]) if is_kwarg else make_handler_id(fn, id, path)
        )
        call = None if make_call is None else make_call(fn)
        handler = cls(id=handler_id, fn=fn, call=call, selector=selector, field=path, **generic, **specifics)
        _get_registry(registry).append(handler)
        return fn

    return decorate


def _make_selector(name: tuple[Name, ...], options: Mapping[str, Any]) -> Selector:
    try:
        return Selector(*name, **options)
    except TypeError as e:
        raise DeclarationError.at_caller(str(e)) from e


def _declare_webhook(type: WebhookType, name: tuple[Name, ...], options: WebhookOptions) -> Callable[[Fn], Fn]:
    operation, several = options.pop("operation", None), options.pop("operations", None)
    operations = frozenset(several or ()) if operation is None else frozenset({operation})
    requested = operations & _OPERATIONS if operations <= _OPERATIONS else None  # by "*", all of them
    if type is WebhookType.MUTATING and not operations:
        requested = _OPERATIONS - {"DELETE"}  # deleted objects cannot be changed
    return _declare(WebhookHandler, name, options, type=type, operations=requested or None)


_TYPICAL_KWARGS = frozenset({"body", "spec", "meta", "status", "name", "namespace", "logger", "patch", "memo", "event"})


def _looks_like_handler(fn: Callable[..., Any]) -> bool:
    """Tell a handler from a callable selector: handlers accept typical kwargs, and all others by ``**_``."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return False
    takes_kwargs = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return (takes_kwargs and code.co_name != "<lambda>") or not _TYPICAL_KWARGS.isdisjoint(names)


def _get_registry(registry: OperatorRegistry | None) -> OperatorRegistry:
    return registry if registry is not None else get_default_registry()
