"""Handlers: immutable records of the declarations that users make with decorators."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from kopf._handlers.filter_criteria import MetaFilter, ValueFilter, WhenFilter
from kopf._handlers.handler_errors import ErrorsMode
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.fields import FieldPath
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity, Operation, Reason, WebhookType
from kopf._values.records import FrozenRecord, force_setattr
from kopf._values.selectors import Decoder, ResourceModel, Selector
from kopf._values.user_functions import list_read_arguments

HandlerFn = Callable[..., Any]

CALLBACKS: Mapping[str, int] = {
    "when": 0,
    "labels": 1,
    "annotations": 1,
    "value": 1,
    "old": 1,
    "new": 1,
    "initial_delay": 0,
}
"""The options that can be or contain functions, with the numbers of the positional arguments of these."""


def is_async(fn: HandlerFn) -> bool:
    """Tell if the function, partial, or callable instance must be awaited instead of run in a thread."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


class Handler(FrozenRecord, frozen=True, kw_only=True, eq=False):
    """The common part of all handlers: a function, and the options of its retries."""

    id: HandlerId
    fn: HandlerFn
    param: Any = None
    errors: ErrorsMode | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | ExponentialBackoff | None = None
    call: HandlerFn | None = None
    """A replacement of the function with the same arguments, which calls the function itself."""

    # The rest is computed; passed values are ignored.
    is_async: bool = False
    """Whether the function must be awaited."""
    reads: frozenset[str] | None = None
    """The arguments that the function can read; ``None`` for all arguments."""
    decoders: Mapping[int, Mapping[str, Decoder]] | None = None
    """The decoders of arguments, by ``id()`` of the function and the callbacks; ``None`` if there are none."""
    identity: tuple[int, int, str] = (0, 0, "")
    """The identity of the handler: the function (or the method and its instance), and the id."""

    title: ClassVar[str] = "Handler"
    """The name of this kind of handlers in logs."""
    success_level: ClassVar[int] = logging.INFO
    """The level of log lines about successes."""
    stores_result: ClassVar[bool] = False
    """Whether the result goes to the status of the object."""
    is_endless: ClassVar[bool] = False
    """Whether it can run for as long as the object exists."""

    def __post_init__(self) -> None:
        identity = id(getattr(self.fn, "__func__", self.fn)), id(getattr(self.fn, "__self__", None)), self.id
        force_setattr(self, "is_async", is_async(self.call or self.fn))
        force_setattr(self, "reads", list_read_arguments(self.fn))
        force_setattr(self, "identity", identity)

    def __str__(self) -> str:
        return f"{self.title} {self.id!r}"


class ActivityHandler(Handler, frozen=True, kw_only=True, eq=False):
    """A handler of an activity of the operator: startup, cleanup, login, probes."""

    title = "Activity"

    activity: Activity


class ResourceHandler(Handler, frozen=True, kw_only=True, eq=False):
    """A handler of objects, with filters for them."""

    selector: Selector | None
    labels: Mapping[str, MetaFilter] | None = None
    annotations: Mapping[str, MetaFilter] | None = None
    when: WhenFilter | None = None
    field: FieldPath = ()
    value: ValueFilter = None
    model: ResourceModel | None = None
    """The model of its resource, if any; sub-handlers have the model of their parent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        model = self.model if self.selector is None else self.selector.model
        if model is not None:
            force_setattr(self, "model", model)
            functions = [self.fn, *(fn for _, fn, _ in self.list_callbacks())]
            found = {id(fn): model.find_decoders(fn, self.get_viewed_field(fn)) for fn in functions}
            force_setattr(self, "decoders", {key: decoders for key, decoders in found.items() if decoders} or None)

    def get_viewed_field(self, fn: HandlerFn) -> FieldPath:
        """Get the field of the change that the function or a callback sees; empty for the whole object."""
        return ()

    def list_callbacks(self) -> Iterator[tuple[str, HandlerFn, int]]:
        """List the callbacks with the names of their options, and the numbers of their positional arguments."""
        for option, args in CALLBACKS.items():
            given = getattr(self, option, None)
            for item in given.values() if isinstance(given, Mapping) else [given]:
                if callable(item):
                    yield option, item, args


class WatchingHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler of raw watch events."""

    stores_result = True

    reads_event: bool = False  # it is computed, too
    """Whether the function or a callback can read the raw event: then Kopf decodes it for them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        reads = (self.reads, *(list_read_arguments(fn) for _, fn, _ in self.list_callbacks()))
        force_setattr(self, "reads_event", any(names is None or "event" in names for names in reads))


class IndexingHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler that fills an index."""

    title = "Indexer"


class Reference(FrozenRecord, frozen=True):
    """A reference of an object to other objects: their resource, and a function that finds their names."""

    selector: Selector
    fn: HandlerFn
    """The function: see :func:`kopf.ref`. It gets the arguments of handlers."""


class SpawningHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler that runs in the background while an object exists."""

    stores_result = True

    requires_finalizer: bool = True
    """Whether a finalizer holds the objects until it has stopped."""
    initial_delay: float | Callable[..., float] | None = None
    """The seconds from the appearance of the object to the first run."""


class DaemonHandler(SpawningHandler, frozen=True, kw_only=True, eq=False):
    """A handler that runs once for each object, and for long."""

    title = "Daemon"
    is_endless = True

    cancellation_backoff: float | None = None
    """The seconds to exit on request until the cancellation."""
    cancellation_timeout: float | None = None
    """The seconds to exit after that until Kopf abandons the daemon; ``None`` is for no limit."""
    cancellation_polling: float | None = None
    """The seconds between log lines about a daemon that does not exit."""


class TimerHandler(SpawningHandler, frozen=True, kw_only=True, eq=False):
    """A handler that runs again and again for each object."""

    title = "Timer"
    success_level = logging.DEBUG  # otherwise, they would fill the log and the events

    interval: float | None = None
    """The seconds from the end of one run to the start of the next one."""
    sharp: bool = False
    """Whether to measure the interval from the start of a run."""
    idle: float | None = None
    """The seconds without changes of the object before a run."""
    owns: tuple[Selector, ...] = ()
    """The resources that the object owns: after their changes, the next run is early."""


class WebhookHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """An admission handler: it denies or modifies changes before they are made."""

    title = "Webhook"
    success_level = logging.DEBUG  # all changes of all users pass through it

    type: WebhookType
    operations: frozenset[Operation] | None = None
    """The operations to review; ``None`` for all."""
    subresource: str | None = None
    """The subresource to review; ``None`` for the object itself, ``"*"`` for the object and all subresources."""
    persistent: bool = False
    """Whether it blocks changes also while no operator runs."""
    side_effects: bool = False
    """Whether it changes anything else, except in dry runs."""
    ignore_failures: bool = False
    """Whether changes are admitted if it fails or is unreachable."""


class ConversionHandler(Handler, frozen=True, kw_only=True, eq=False):
    """A function that converts objects from one version of their definition to another one."""

    title = "Conversion"

    definition: str
    """The name of the custom resource definition: ``widgets.example.com``."""
    source: str
    """The version of its argument."""
    target: str
    """The version of its result."""


class ChangingHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler of detected changes."""

    stores_result = True

    reason: Reason | None
    """The reason of its calls; ``None`` for any reason (fields, sub-handlers)."""
    initial: bool = False
    """Whether it is for objects that existed before the start of the operator (resuming)."""
    deleted: bool = False
    """For resuming handlers: whether it is also for objects in deletion."""
    requires_finalizer: bool = False
    """Whether a finalizer holds the objects until it has finished."""
    field_needs_change: bool = False
    """Whether the field must have changed (updates), or only exist (all others)."""
    old: ValueFilter = None
    new: ValueFilter = None
    owns: tuple[Selector, ...] = ()
    """The resources that the object owns: their changes and the start of the operator call it again."""
    uses: tuple[Reference, ...] = ()
    """The references to objects whose changes call it again."""
    interval: float | None = None
    """The seconds from its success to the next call without changes."""
    scope: FieldPath = ()
    """
    For sub-handlers of a field handler: the field of the parent. They and their filters see only the change of this
    field, and their own fields are inside.
    """

    def get_viewed_field(self, fn: HandlerFn) -> FieldPath:
        return (self.field if fn is self.fn else ()) or self.scope

    @property
    def repeats(self) -> bool:
        """Whether each operator process calls it again, although the object has not changed."""
        return self.initial or self.is_wakeable

    @property
    def is_wakeable(self) -> bool:
        """Whether changes of other objects can call it, and therefore the start of the operator calls it, too."""
        return bool(self.owns)


class ReconcilingHandler(ChangingHandler, frozen=True, kw_only=True, eq=False):
    """A handler that declares the desired children of an object, regardless of its changes."""

    conditions: bool | None = None
    """Whether it sets the conditions of the object by its children; ``None`` if not specified."""
    sets_conditions: bool = False  # it is computed, too
    """The same; if not specified, true if the model has conditions."""

    success_level = logging.DEBUG  # all events around the object call it
    stores_result = False

    def __post_init__(self) -> None:
        super().__post_init__()
        by_default = self.model is not None and self.model.has_conditions
        force_setattr(self, "sets_conditions", by_default if self.conditions is None else self.conditions)

    @property
    def is_wakeable(self) -> bool:
        return True


_KINDS: Mapping[type[Handler], str] = {
    WatchingHandler: "event",
    IndexingHandler: "index",
    DaemonHandler: "daemon",
    TimerHandler: "timer",
    ReconcilingHandler: "reconcile",
}
_ACTIVITIES: Mapping[Activity, str] = {
    Activity.STARTUP: "startup",
    Activity.CLEANUP: "cleanup",
    Activity.AUTHENTICATION: "login",
    Activity.PROBE: "probe",
}
_WEBHOOKS: Mapping[WebhookType, str] = {WebhookType.VALIDATING: "validate", WebhookType.MUTATING: "mutate"}


def name_kind(handler: Handler) -> str:
    """Name the decorator of the handler."""
    match handler:
        case ActivityHandler():
            return _ACTIVITIES[handler.activity]
        case WebhookHandler():
            return _WEBHOOKS[handler.type]
        case ChangingHandler() if type(handler) not in _KINDS:
            return "resume" if handler.initial else "field" if handler.reason is None else handler.reason.value
    return _KINDS[type(handler)]


class Need(FrozenRecord, frozen=True, kw_only=True):
    """A permission that the operator needs besides the permissions for its handlers."""

    selector: Selector
    subresource: str | None
    verbs: tuple[str, ...]
    names: tuple[str, ...]
    """The names of the objects; empty for all objects."""
    namespace: str | None
    """The namespace; ``None`` is for all namespaces that the operator serves."""
