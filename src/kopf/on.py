"""
The decorators of handlers.

>>> import kopf
>>>
>>> @kopf.on.create('kopfexamples')
... def create_fn(spec, **_):
...     pass

All of them return the function as it is, so that it can be decorated again, or called directly. The positional
arguments name the resource: ``(name)``, ``(group, name)``, ``(group/version, name)``, ``(group, version, name)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar, Unpack

from kopf._handlers.current_handler import SubhandlingContext, current_subhandling
from kopf._handlers.declarations import DeclarationError
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
    check_options,
    show_options,
    to_plain_numbers,
)
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._handlers.signatures import check_handlers
from kopf._values.fields import FieldPath, FieldSpec, parse_field
from kopf._values.ids import HandlerId, get_callable_id
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


@show_options(ActivityOptions)
def startup(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """Called before the operator begins to work. If it fails, the operator does not start."""
    check_options(options, ActivityOptions)
    return _declare_activity(Activity.STARTUP, **options)


@show_options(ActivityOptions)
def cleanup(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """Called when the operator exits."""
    check_options(options, ActivityOptions)
    return _declare_activity(Activity.CLEANUP, **options)


@show_options(ActivityOptions)
def login(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """Called to get the credentials: it returns :class:`kopf.ConnectionInfo`, or ``None`` if it has none."""
    check_options(options, ActivityOptions)
    return _declare_activity(Activity.AUTHENTICATION, **options)


@show_options(ActivityOptions)
def probe(**options: Unpack[ActivityOptions]) -> Callable[[Fn], Fn]:
    """
    Called when the health is asked for (``--liveness``); what it returns goes to the answer under its id, as JSON.

    If it fails, the operator is reported as unhealthy. Unlike other handlers, it is not retried after arbitrary
    exceptions, unless it is declared with ``errors=ErrorsMode.TEMPORARY``: those who ask wait for the answer.
    """
    check_options(options, ActivityOptions)
    return _declare_activity(Activity.PROBE, **options)


@show_options(EventOptions)
def event(*name: Name, **options: Unpack[EventOptions]) -> Callable[[Fn], Fn]:
    """Called for every event in the watch stream, silently: no state is kept on the object, errors are only logged."""
    check_options(options, EventOptions)
    return _declare(WatchingHandler, name, options)


@show_options(OwnerOptions)
def create(*name: Name, **options: Unpack[OwnerOptions]) -> Callable[[Fn], Fn]:
    """Called when an object is created, or when it is seen for the first time."""
    check_options(options, OwnerOptions)
    return _declare(ChangingHandler, name, options, reason=Reason.CREATE)


@show_options(ResumeOptions)
def resume(*name: Name, **options: Unpack[ResumeOptions]) -> Callable[[Fn], Fn]:
    """Called once for every object that exists when the operator starts."""
    check_options(options, ResumeOptions)
    options["deleted"] = bool(options.get("deleted"))
    return _declare(ChangingHandler, name, options, reason=None, initial=True)


@show_options(UpdateOptions)
def update(*name: Name, **options: Unpack[UpdateOptions]) -> Callable[[Fn], Fn]:
    """Called when an object is essentially changed; with ``field=``, when that field is changed."""
    check_options(options, UpdateOptions)
    return _declare(ChangingHandler, name, options, reason=Reason.UPDATE, field_needs_change=True)


@show_options(DeleteOptions)
def delete(*name: Name, **options: Unpack[DeleteOptions]) -> Callable[[Fn], Fn]:
    """Called when an object is marked for deletion, before it is actually deleted."""
    check_options(options, DeleteOptions)
    requires_finalizer = not options.pop("optional", None)
    return _declare(ChangingHandler, name, options, reason=Reason.DELETE, requires_finalizer=requires_finalizer)


@show_options(UpdateOptions, required="field")
def field(*name: Name, **options: Unpack[UpdateOptions]) -> Callable[[Fn], Fn]:
    """Called when the field of an object is added, changed, or removed. The ``field=`` is mandatory."""
    missing = "The field is not specified: @kopf.on.field(…, field='spec.something')."
    check_options(options, UpdateOptions, others=() if options.get("field") else (missing,))
    return _declare(ChangingHandler, name, options, reason=None, field_needs_change=True)


@show_options(ReconcileOptions)
def reconcile(*name: Name, **options: Unpack[ReconcileOptions]) -> Callable[[Fn], Fn]:
    """
    Called whenever something can be different from what it should be: it yields (or returns) what is to be there.

    What is yielded becomes a child of the object, as by :func:`kopf.apply`; the expression ``yield`` is the child as it
    is then. What was yielded before, and is not anymore, is deleted. Its resources are to be named in ``owns=``.
    """
    from kopf._kits.reconciling import make_call  # most operators have no reconcilers

    check_options(options, ReconcileOptions)
    uses = options.pop("uses", None) or ()
    references = (uses,) if isinstance(uses, Reference) else tuple(uses)
    return _declare(ReconcilingHandler, name, options, make_call=make_call, reason=None, uses=references)


@show_options(CreateOptions)
def index(*name: Name, **options: Unpack[CreateOptions]) -> Callable[[Fn], Fn]:
    """
    Called for every object to say what of it goes to the index.

    The index is a kwarg of all other handlers, so it has the plain name of the function, with no classes in it.
    """
    check_options(options, CreateOptions)
    return _declare(IndexingHandler, name, options, is_kwarg=True)


@show_options(WebhookOptions)
def validate(*name: Name, **options: Unpack[WebhookOptions]) -> Callable[[Fn], Fn]:
    """Called before an object is changed, to deny that by raising an error (:class:`kopf.AdmissionError`)."""
    return _declare_webhook(WebhookType.VALIDATING, name, options)


@show_options(WebhookOptions)
def mutate(*name: Name, **options: Unpack[WebhookOptions]) -> Callable[[Fn], Fn]:
    """Called before an object is changed, to change it a bit more (via ``patch``), or to deny that by an error."""
    return _declare_webhook(WebhookType.MUTATING, name, options)


def convert(
    resource: str | ResourceModel, source: str, target: str, *, registry: OperatorRegistry | None = None
) -> Callable[[Fn], Fn]:
    """
    Called with an object of the version ``source``, as a dict, to return it as it is in the version ``target``.

    The ``resource`` is the name of its definition (``"widgets.example.com"``), or a model. Where there is no function
    for two versions, several are called in turn. The function can change and return what it gets. Of the metadata, it
    can only change the labels and the annotations.
    """
    definition = resource if isinstance(resource, str) else _name_definition(resource)
    id = HandlerId(f"{definition}/{source}-{target}")
    if definition.count(".") < 2 or "/" in definition:
        raise DeclarationError.at_caller(
            f"Name the resource as in 'kubectl get crd', e.g. 'widgets.example.com', got {definition!r}."
        )
    if source == target or "/" in f"{source}{target}":
        raise DeclarationError.at_caller(f"Name two versions, e.g. 'v1beta1', 'v1', got {source!r}, {target!r}.")

    def decorate(fn: Fn) -> Fn:
        _check_function(fn)
        into = _get_registry(registry)
        if any(handler.id == id for handler in into.conversions):
            raise DeclarationError.at_caller(
                f"It is declared twice how to convert {definition} from {source} to {target}."
            )
        into.append(ConversionHandler(id=id, fn=fn, definition=definition, source=source, target=target))
        return fn

    return decorate


@show_options(DaemonOptions)
def daemon(*name: Name, **options: Unpack[DaemonOptions]) -> Callable[[Fn], Fn]:
    """Called once for every object, and runs in the background for as long as the object exists."""
    check_options(options, DaemonOptions)
    requires_finalizer = not options.pop("optional", None)
    return _declare(DaemonHandler, name, options, requires_finalizer=requires_finalizer)


@show_options(TimerOptions)
def timer(*name: Name, **options: Unpack[TimerOptions]) -> Callable[[Fn], Fn]:
    """Called for every object again and again, for as long as the object exists."""
    check_options(options, TimerOptions)
    options["sharp"] = bool(options.get("sharp"))
    requires_finalizer = not options.pop("optional", None)
    return _declare(TimerHandler, name, options, requires_finalizer=requires_finalizer)


@show_options(SubhandlerOptions)
def subhandler(**options: Unpack[SubhandlerOptions]) -> Callable[[Fn], Fn]:
    """
    Declare a sub-handler of the handler that is being executed now.

    The handler will be considered as finished only when all of its sub-handlers are. Until then, it is called again
    and again, and must declare the same sub-handlers. Raises :class:`LookupError` outside of handlers.
    """
    check_options(options, SubhandlerOptions)

    def decorate(fn: Fn) -> Fn:
        context = current_subhandling.get(None)
        if context is None:
            raise LookupError("Sub-handlers can only be declared while a handler of changes is being executed.")
        handler = _make_subhandler(context, fn, **options)
        check_handlers([handler], context.cause.indices)
        context.declared.append(handler)
        return fn

    return decorate


@show_options(SubhandlerOptions)
def register(fn: Fn, **options: Unpack[SubhandlerOptions]) -> Fn:
    """Declare a sub-handler of the handler that is being executed now: the same as :func:`subhandler`, as a call."""
    return subhandler(**options)(fn)


def _declare_activity(
    activity: Activity, *, id: str | None = None, registry: OperatorRegistry | None = None, **options: Any
) -> Callable[[Fn], Fn]:
    def decorate(fn: Fn) -> Fn:
        _check_function(fn)
        handler = ActivityHandler(id=_make_id(fn, id), fn=fn, activity=activity, **to_plain_numbers(options))
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
    generic = to_plain_numbers(options)
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
    if (owns := generic.pop("owns", None)) is not None:
        owned = [owns] if isinstance(owns, str | ResourceModel) else owns
        specifics["owns"] = tuple(_make_selector((item,), {}) for item in owned)

    def decorate(fn: Fn) -> Fn:
        _check_function(fn)
        handler_id = HandlerId(id or get_callable_id(fn).rpartition(".")[-1]) if is_kwarg else _make_id(fn, id, path)
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


def _make_subhandler(
    context: SubhandlingContext,
    fn: Callable[..., Any],
    *,
    id: str | None = None,
    field: FieldSpec = None,
    **options: Any,
) -> ChangingHandler:
    parent, path = context.parent, parse_field(field)
    scope = parent.field or parent.scope
    # The field is not a part of the id, unlike with other handlers, unless they could not be told apart.
    name = HandlerId(f"{parent.id}/{_make_id(fn, id, ())}")
    if path and any(item.id == name for item in context.declared):
        name = HandlerId(f"{parent.id}/{_make_id(fn, id, path)}")
    return ChangingHandler(
        id=name,
        fn=fn,
        selector=None,
        reason=None,
        field=(*scope, *path) if path else (),  # it is in what the parent sees, as the whole change is
        field_needs_change=parent.field_needs_change,
        scope=scope,
        model=parent.model,
        **to_plain_numbers(options),
    )


def _name_definition(model: ResourceModel) -> str:
    group, _, plural = model.get_resource_names()
    return f"{plural}.{group}"


_OPERATIONS: frozenset[Operation] = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


def _declare_webhook(type: WebhookType, name: tuple[Name, ...], options: WebhookOptions) -> Callable[[Fn], Fn]:
    check_options(options, WebhookOptions, others=_list_webhook_problems(options))
    operation, operations = options.pop("operation", None), options.pop("operations", None)
    requested: frozenset[str] = frozenset({operation} if operation is not None else operations or ())
    for key in ("persistent", "side_effects", "ignore_failures"):
        options[key] = bool(options.get(key))
    return _declare(WebhookHandler, name, options, type=type, operations=_parse_operations(requested))


def _list_webhook_problems(options: WebhookOptions) -> Iterator[str]:
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


def _parse_operations(requested: frozenset[str]) -> frozenset[Operation] | None:
    if "*" in requested:
        return None
    return frozenset(name for name in _OPERATIONS if name in requested) or None


_TYPICAL_KWARGS = frozenset({"body", "spec", "meta", "status", "name", "namespace", "logger", "patch", "memo", "event"})


def _looks_like_handler(fn: Callable[..., Any]) -> bool:
    """Callable selectors accept a resource; handlers accept some of the usual kwargs, and all the other ones."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return False
    takes_kwargs = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return (takes_kwargs and code.co_name != "<lambda>") or not _TYPICAL_KWARGS.isdisjoint(names)


def _check_function(fn: Callable[..., Any]) -> None:
    if not callable(fn):
        raise DeclarationError.at_caller(
            f"A handler must be a function, got {fn!r}. Methods can be registered when their instance exists: "
            "kopf.on.create('pods')(instance.method)."
        )
    if not inspect.ismethod(fn) and _takes_instance(fn):
        raise DeclarationError.at_caller(
            f"{getattr(fn, '__qualname__', fn)} looks like a method, and there is no instance to call it for. "
            "Decorate a function or a static method, or register the methods of an instance when it exists: "
            "kopf.on.create('pods')(instance.method)."
        )


def _takes_instance(fn: Callable[..., Any]) -> bool:
    """Tell if the first argument is for an instance or a class: handlers are called with kwargs only."""
    code = getattr(fn, "__code__", None)
    return code is not None and code.co_argcount > 0 and code.co_varnames[0] in ("self", "cls")


def _make_id(fn: Callable[..., Any], id: str | None, path: FieldPath = ()) -> HandlerId:
    name = id if id is not None else get_callable_id(fn)
    return HandlerId(f"{name}/{'.'.join(path)}" if path else name)


def _get_registry(registry: OperatorRegistry | None) -> OperatorRegistry:
    return registry if registry is not None else get_default_registry()
