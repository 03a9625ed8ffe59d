"""
Causes: the reasons of calls of handlers, with the keyword arguments of the handlers.

All handlers of a cause share their common kwargs. A cause makes these once, on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from kopf._handlers.handlers import (
    ChangingHandler,
    Handler,
    HandlerFn,
    ResourceHandler,
    SpawningHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._logging.loggers import Logger
from kopf._settings.settings import OperatorSettings
from kopf._values.bodies import Body, BodyEssence, RawEventType
from kopf._values.diffs import Diff, diff
from kopf._values.fields import FieldPath, resolve
from kopf._values.ids import HandlerId
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.patches import Patch
from kopf._values.reasons import Activity, Operation, Reason, WebhookType
from kopf._values.records import FrozenRecord, Record, field
from kopf._values.resources import Resource
from kopf._values.selectors import Decoder

if TYPE_CHECKING:
    from kopf._values.reviews import Headers, SSLPeer

Kwargs = dict[str, Any]
Getter = Callable[[Any], Any]


class Deferred(FrozenRecord, frozen=True):
    """A placeholder of a value that is made on demand, as most handlers never read it."""

    make: Callable[[str], Any]
    key: str
    """The key of the object."""


def _get_memo(cause: Cause) -> Any:
    if type(cause.memo) is Deferred:
        cause.memo = cause.memo.make(cause.memo.key)
    return cause.memo


class Cause(Record, kw_only=True, eq=False):
    """The cause of a call: with all that handlers of any kind get."""

    getters: ClassVar[Mapping[str, Getter]] = {"logger": attrgetter("logger"), "memo": _get_memo}
    """How to get each of the kwargs of the cause."""

    logger: Logger
    memo: Any
    """The memo, or :class:`Deferred`."""
    indices: Mapping[str, Any]
    _kwargs: Kwargs | None = None

    @classmethod
    def list_kwargs(cls) -> Sequence[str]:
        """List the names of all kwargs of a handler, except for the indices."""
        return ("param", "retry", "started", "runtime", *cls.getters)

    @property
    def kwargs(self) -> Kwargs:
        """The kwargs for all handlers of this cause, made once; they must not be modified."""
        if self._kwargs is None:
            self._kwargs = {name: get(self) for name, get in self.getters.items()}
            self._kwargs.update(self.indices)  # they have precedence over all kwargs, present and future
        return self._kwargs

    def kwargs_for_filters(self, handler: Handler) -> Kwargs:
        """The kwargs for the callbacks of the handler's filters: they see the whole change, not that of one field."""
        return {"param": handler.param, **self.kwargs}

    def kwargs_for(self, handler: Handler, reads: frozenset[str] | None = None) -> Kwargs:
        """The kwargs for the handler, except for the attempt. Those that are not among ``reads`` can be absent."""
        if reads is None or not reads.isdisjoint(self.indices):
            return self.kwargs_for_filters(handler)
        kwargs: Kwargs = {"param": handler.param}
        getters = self.getters
        for name in reads:
            if (get := getters.get(name)) is not None:
                kwargs[name] = get(self)
        return kwargs


class ActivityCause(Cause, kw_only=True, eq=False):
    """The operator starts, stops, logs in, or is asked for its health."""

    getters: ClassVar[Mapping[str, Getter]] = {
        **Cause.getters,
        "activity": attrgetter("activity"),
        "settings": attrgetter("settings"),
    }

    activity: Activity
    settings: OperatorSettings


_KWARGS_OF_OBJECT: Mapping[str, Getter] = {
    **Cause.getters,
    "resource": attrgetter("resource"),
    "patch": attrgetter("patch"),
    "body": attrgetter("body"),
    "spec": attrgetter("body.spec"),
    "meta": attrgetter("body.metadata"),
    "status": attrgetter("body.status"),
    "uid": attrgetter("body.object.head.uid"),
    "name": attrgetter("body.object.head.name"),
    "namespace": attrgetter("body.object.head.namespace"),
    "labels": attrgetter("body.metadata.labels"),
    "annotations": attrgetter("body.metadata.annotations"),
}


class ResourceCause(Cause, kw_only=True, eq=False):
    """Something happens to an object."""

    getters: ClassVar[Mapping[str, Getter]] = _KWARGS_OF_OBJECT

    resource: Resource
    body: Body
    patch: Patch
    _decoded: dict[tuple[str, FieldPath, Decoder], Any] | None = None

    def decode(self, handler: ResourceHandler, fn: HandlerFn, kwargs: Kwargs) -> None:
        """
        Decode the kwargs that the function wants as typed values; each of them once for the cause.

        Raises :class:`ModelMismatchError` if the object does not fit its model. An old state that does not fit, e.g.
        as it is of an older model, becomes ``None``.
        """
        decoders = (handler.decoders or {}).get(id(fn), {})
        for name, decoder in decoders.items():
            if kwargs.get(name) is not None and name not in self.indices:
                key = name, handler.get_viewed_field(fn), decoder
                decoded = self._decoded = self._decoded if self._decoded is not None else {}
                if key not in decoded:
                    decoded[key] = _decode_old(decoder, kwargs[name]) if name == "old" else decoder(kwargs[name])
                kwargs[name] = decoded[key]

    def check_fit(self, handler: ResourceHandler) -> None:
        """
        Check that the object fits the types that the handler's function and callbacks want.

        Raises :class:`ModelMismatchError` otherwise.
        """
        if handler.decoders is not None:
            self.decode(handler, handler.fn, self.kwargs_for(handler, handler.reads))
            for _, callback, _ in handler.list_callbacks():
                self.decode(handler, callback, self.kwargs_for_filters(handler))


class BackgroundCause(ResourceCause, kw_only=True, eq=False):
    """It is time for a daemon or a timer of an object."""

    getters: ClassVar[Mapping[str, Getter]] = {**_KWARGS_OF_OBJECT, "stopped": attrgetter("stopped")}

    stopped: object
    """The flag by which the function learns that it must exit."""


class WatchingCause(ResourceCause, kw_only=True, eq=False):
    """A raw event has arrived."""

    getters: ClassVar[Mapping[str, Getter]] = {**_KWARGS_OF_OBJECT, "type": attrgetter("type")}

    type: RawEventType

    @classmethod
    def list_kwargs(cls) -> Sequence[str]:
        return (*super().list_kwargs(), "event")

    def kwargs_for_filters(self, handler: Handler) -> Kwargs:
        kwargs = super().kwargs_for_filters(handler)
        if isinstance(handler, WatchingHandler) and handler.reads_event:  # most of them do not
            self._add_event(kwargs)
        return kwargs

    def kwargs_for(self, handler: Handler, reads: frozenset[str] | None = None) -> Kwargs:
        kwargs = super().kwargs_for(handler, reads)
        if reads is not None and "event" in reads:
            self._add_event(kwargs)
        return kwargs

    def _add_event(self, kwargs: Kwargs) -> None:
        if "event" not in kwargs:
            kwargs["event"] = {"type": self.type, "object": dict(self.body.object)}


_KWARGS_OF_FIELD: Mapping[str, Getter] = {
    "old": attrgetter("old"),
    "new": attrgetter("new"),
    "diff": attrgetter("diff"),
}


class Change(FrozenRecord, frozen=True):
    """The last handled state of an object, its current state, and the difference."""

    old: BodyEssence | None
    new: BodyEssence | None
    diff: Diff


class ChangingCause(ResourceCause, kw_only=True, eq=False):
    """The object was created, essentially changed, marked for deletion, or seen for the first time."""

    getters: ClassVar[Mapping[str, Getter]] = {**_KWARGS_OF_OBJECT, "reason": attrgetter("reason"), **_KWARGS_OF_FIELD}

    reason: Reason
    initial: bool = False
    """Whether the object existed before the operator started, and its resuming is not handled yet."""
    woken: Collection[HandlerId] = ()
    """The handlers to call although the object itself has not changed."""
    get_change: Callable[[], Change]
    """Makes the change: it is decoded on demand, and then kept."""
    _change: Change | None = None

    @property
    def change(self) -> Change:
        """The change of the object."""
        if self._change is None:
            self._change = self.get_change()
        return self._change

    @property
    def old(self) -> BodyEssence | None:
        """The last handled state of the object; ``None`` for new objects."""
        return self.change.old

    @property
    def new(self) -> BodyEssence | None:
        """The current state of the object."""
        return self.change.new

    @property
    def diff(self) -> Diff:
        """The difference of the two states."""
        return self.change.diff

    def kwargs_for(self, handler: Handler, reads: frozenset[str] | None = None) -> Kwargs:
        kwargs = ResourceCause.kwargs_for(self, handler, reads)  # with no super(), for speed
        if reads is not None and reads.isdisjoint(_KWARGS_OF_FIELD):
            return kwargs
        if isinstance(handler, ChangingHandler) and (path := handler.field or handler.scope):
            _narrow_to_field(kwargs, path, self)
        return kwargs

    def kwargs_for_filters(self, handler: Handler) -> Kwargs:
        if isinstance(handler, SpawningHandler):  # it is for the object, whether it is changed or not
            kwargs = {name: get(self) for name, get in _KWARGS_OF_OBJECT.items()}
            return {"param": handler.param, **kwargs, **self.indices}
        kwargs = {"param": handler.param, **self.kwargs}
        if isinstance(handler, ChangingHandler) and handler.scope:
            _narrow_to_field(kwargs, handler.scope, self)
        return kwargs


class WebhookCause(ResourceCause, kw_only=True, eq=False):
    """The API server asks whether a change of an object is permitted."""

    getters: ClassVar[Mapping[str, Getter]] = {
        **_KWARGS_OF_OBJECT,
        "name": lambda cause: cause.body.object.head.name or cause.name,
        "namespace": lambda cause: cause.body.object.head.namespace or cause.namespace,
        "operation": attrgetter("operation"),
        "subresource": attrgetter("subresource"),
        "dryrun": attrgetter("dryrun"),
        "userinfo": attrgetter("userinfo"),
        "headers": attrgetter("headers"),
        "sslpeer": attrgetter("sslpeer"),
        "warnings": attrgetter("warnings"),
        "old": attrgetter("old"),
        "new": attrgetter("new"),
        "diff": lambda cause: diff(cause.old, cause.new),
    }

    name: str | None
    """The name in the request: the reviewed object can have no name."""
    namespace: str | None
    operation: Operation
    subresource: str | None
    dryrun: bool
    userinfo: Mapping[str, Any]
    headers: Headers
    sslpeer: SSLPeer
    warnings: list[str]
    old: Body | None
    new: Body | None
    discarded: Patch = field(default_factory=Patch)
    """The ``patch`` of validating handlers, which cannot change anything."""

    def kwargs_for(self, handler: Handler, reads: frozenset[str] | None = None) -> Kwargs:
        kwargs = super().kwargs_for(handler)  # all of them, as they are not the same for all handlers
        if not (isinstance(handler, WebhookHandler) and handler.type is WebhookType.MUTATING):
            kwargs.update({"patch": self.discarded, **self.indices})
        return kwargs


def _decode_old(decoder: Decoder, value: Any) -> Any:
    try:
        return decoder(value)
    except ModelMismatchError:
        return None


def _narrow_to_field(kwargs: Kwargs, path: FieldPath, cause: ChangingCause) -> None:
    """Show the change of the field instead of the whole object."""
    old, new = resolve(cause.old, path), resolve(cause.new, path)
    kwargs.update({"old": old, "new": new, "diff": diff(old, new)})
    kwargs.update(cause.indices)
