"""Handlers: what users have declared with the decorators, as immutable records."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kopf._handlers.criteria import MetaFilter, ValueFilter, WhenFilter
from kopf._handlers.handler_errors import ErrorsMode
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.fields import FieldPath
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity, Operation, Reason, WebhookType
from kopf._values.records import FrozenRecord, force_setattr
from kopf._values.selectors import Decoder, ResourceModel, Selector
from kopf._values.user_functions import list_read_arguments

HandlerFn = Callable[..., Any]


def is_async(fn: HandlerFn) -> bool:
    """Tell if the function (a partial, a callable instance) is to be awaited rather than run in a thread."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


class Handler(FrozenRecord, frozen=True, kw_only=True, eq=False):
    """What all kinds of handlers have in common: a function, and how to retry it."""

    id: HandlerId
    fn: HandlerFn
    param: Any = None
    errors: ErrorsMode | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | ExponentialBackoff | None = None
    call: HandlerFn | None = None
    """What is called instead of the function, with the same arguments; it calls the function in its own way."""

    # These are found out, whatever is passed.
    is_async: bool = False
    """Whether the function is to be awaited."""
    reads: frozenset[str] | None = None
    """The arguments that its function can look at; ``None`` for all of them."""
    decoders: Mapping[int, Mapping[str, Decoder]] | None = None
    """Of its function and its callbacks (by ``id()``): which arguments they want decoded; ``None`` if none of them."""
    identity: tuple[int, int, str] = (0, 0, "")
    """What is considered the same handler: the same function (a method of the same instance) under the same id."""

    success_level: ClassVar[int] = logging.INFO
    """At which level a success is logged."""
    stores_result: ClassVar[bool] = False
    """Whether what it returns goes to the status of the object."""
    is_endless: ClassVar[bool] = False
    """Whether it is meant to run for as long as the object exists."""

    def __post_init__(self) -> None:
        identity = id(getattr(self.fn, "__func__", self.fn)), id(getattr(self.fn, "__self__", None)), self.id
        force_setattr(self, "is_async", is_async(self.call or self.fn))
        force_setattr(self, "reads", list_read_arguments(self.fn))
        force_setattr(self, "identity", identity)

    def __str__(self) -> str:
        return f"Handler {self.id!r}"


class ActivityHandler(Handler, frozen=True, kw_only=True, eq=False):
    """A handler of the operator's own life: startup, cleanup, login, probes."""

    activity: Activity

    def __str__(self) -> str:
        return f"Activity {self.id!r}"


class ResourceHandler(Handler, frozen=True, kw_only=True, eq=False):
    """A handler of objects, with filters for them."""

    selector: Selector | None
    labels: Mapping[str, MetaFilter] | None = None
    annotations: Mapping[str, MetaFilter] | None = None
    when: WhenFilter | None = None
    field: FieldPath = ()
    value: ValueFilter = None
    model: ResourceModel | None = None
    """What describes its resource by types, if anything does; of sub-handlers, it is that of the parent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        model = self.model if self.selector is None else self.selector.model
        if model is not None:
            force_setattr(self, "model", model)
            functions = [self.fn, *self.list_callbacks()]
            found = {id(fn): model.find_decoders(fn, self.get_viewed_field(fn)) for fn in functions}
            force_setattr(self, "decoders", {key: decoders for key, decoders in found.items() if decoders} or None)

    def get_viewed_field(self, fn: HandlerFn) -> FieldPath:
        """Tell of which field its function, or a callback of it, sees the change; empty if of the object."""
        return self.field if fn is self.fn else ()

    def list_callbacks(self) -> list[HandlerFn]:
        """Give the functions of its options."""
        patterns = (*(self.labels or {}).values(), *(self.annotations or {}).values())
        options = (getattr(self, name, None) for name in ("value", "old", "new", "initial_delay"))
        return [item for item in (self.when, *patterns, *options) if callable(item)]


class WatchingHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler of the raw watch-events."""

    stores_result = True

    reads_event: bool = False  # it is found out, too
    """Whether its function, or any of the callbacks, could look at the raw event: then it is decoded for them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        filters = (self.when, self.value, *(self.labels or {}).values(), *(self.annotations or {}).values())
        reads = (self.reads, *(list_read_arguments(item) for item in filters if callable(item)))
        force_setattr(self, "reads_event", any(names is None or "event" in names for names in reads))


class IndexingHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler that says what of an object goes to an index."""

    def __str__(self) -> str:
        return f"Indexer {self.id!r}"


class Reference(FrozenRecord, frozen=True):
    """What an object refers to: a resource, and how to find the names of its objects."""

    selector: Selector
    fn: HandlerFn
    """It gets the arguments of handlers, and returns what :func:`kopf.ref` says."""


class SpawningHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler that runs in the background for as long as an object exists."""

    stores_result = True

    requires_finalizer: bool = True
    """Whether the objects are blocked from deletion until it is stopped."""
    initial_delay: float | Callable[..., float] | None = None
    """In how many seconds after the object is noticed to begin."""


class DaemonHandler(SpawningHandler, frozen=True, kw_only=True, eq=False):
    """A handler that runs once and for long."""

    is_endless = True

    cancellation_backoff: float | None = None
    """How long it may take the daemon to exit gracefully until it is cancelled."""
    cancellation_timeout: float | None = None
    """How long it may take the daemon to exit after that until it is abandoned; ``None`` is for forever."""
    cancellation_polling: float | None = None
    """How often to remind in the logs of a daemon that does not exit."""

    def __str__(self) -> str:
        return f"Daemon {self.id!r}"


class TimerHandler(SpawningHandler, frozen=True, kw_only=True, eq=False):
    """A handler that runs again and again."""

    success_level = logging.DEBUG  # it would be most of the log, and of the events

    interval: float | None = None
    """How many seconds there are between the end of one run and the beginning of the next one."""
    sharp: bool = False
    """Whether the interval is measured between the beginnings."""
    idle: float | None = None
    """For how many seconds the object must stay unchanged before a run."""
    owns: tuple[Selector, ...] = ()
    """Which resources its object owns: when these are changed, it runs early."""

    def __str__(self) -> str:
        return f"Timer {self.id!r}"


class WebhookHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler of the changes that are not made yet, and depend on it."""

    success_level = logging.DEBUG  # it is in the way of everybody's changes

    type: WebhookType
    operations: frozenset[Operation] | None = None
    """Which operations it checks; ``None`` for all."""
    subresource: str | None = None
    """Which subresource it checks; ``None`` for the object itself, ``"*"`` for the object and all subresources."""
    persistent: bool = False
    """Whether it blocks the changes also when the operator does not run."""
    side_effects: bool = False
    """Whether it changes anything else (except in dry runs)."""
    ignore_failures: bool = False
    """Whether the changes are admitted also when it fails or cannot be reached."""

    def __str__(self) -> str:
        return f"Webhook {self.id!r}"


class ConversionHandler(Handler, frozen=True, kw_only=True, eq=False):
    """A function that makes an object of one version of its definition out of another one."""

    definition: str
    """The name of the custom resource definition: ``widgets.example.com``."""
    source: str
    """The version of the objects that it gets."""
    target: str
    """The version of the objects that it returns."""

    def __str__(self) -> str:
        return f"Conversion {self.id!r}"


class ChangingHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """A handler of the detected changes."""

    stores_result = True

    reason: Reason | None
    """Which reason it reacts to; ``None`` for any (fields, sub-handlers)."""
    initial: bool = False
    """Whether it is for the objects that existed before the operator started (resuming)."""
    deleted: bool = False
    """For the resuming handlers: whether it is also for the objects being deleted."""
    requires_finalizer: bool = False
    """Whether the objects are blocked from deletion until it is done."""
    field_needs_change: bool = False
    """Whether the field must have been affected (updates) or just be there (all else)."""
    old: ValueFilter = None
    new: ValueFilter = None
    owns: tuple[Selector, ...] = ()
    """Which resources its object owns: when these are changed, it is called again, and so it is at the start."""
    uses: tuple[Reference, ...] = ()
    """Which objects its object refers to: when these are changed, it is called again."""
    interval: float | None = None
    """In how many seconds after it is done it is called again, though nothing has changed."""
    scope: FieldPath = ()
    """
    For sub-handlers of a field's handler: that field. They and their filters see the change of it, and their own fields
    are in it.
    """

    def get_viewed_field(self, fn: HandlerFn) -> FieldPath:
        return super().get_viewed_field(fn) or self.scope

    @property
    def repeats(self) -> bool:
        """Whether it is called by every operator anew, though the object has not changed."""
        return self.initial or self.is_wakeable

    @property
    def is_wakeable(self) -> bool:
        """Whether it can be called though the object itself has not changed, and is called at the start for that."""
        return bool(self.owns)


class ReconcilingHandler(ChangingHandler, frozen=True, kw_only=True, eq=False):
    """A handler that says what is to be there for the object, however the object has become what it is."""

    conditions: bool | None = None
    """Whether it sets the conditions of the object by its children; ``None`` if that is not said."""
    sets_conditions: bool = False  # it is found out, too
    """The same; if it is not said, it does where the model has conditions."""

    success_level = logging.DEBUG  # it is called for everything that happens around the object
    stores_result = False

    def __post_init__(self) -> None:
        super().__post_init__()
        by_default = self.model is not None and self.model.has_conditions
        force_setattr(self, "sets_conditions", by_default if self.conditions is None else bool(self.conditions))

    @property
    def is_wakeable(self) -> bool:
        return True


class Need(FrozenRecord, frozen=True, kw_only=True):
    """Something that the operator must be permitted besides what its handlers need."""

    selector: Selector
    subresource: str | None
    verbs: tuple[str, ...]
    names: tuple[str, ...]
    """Of which objects; of all of them if there are none."""
    namespace: str | None
    """In which namespace; ``None`` is for all that the operator serves."""
