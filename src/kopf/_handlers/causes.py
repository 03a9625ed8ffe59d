"""
Causes: why handlers are called, with all that they get as kwargs.

The kwargs that are common for all handlers of a cause are made once, when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
    """In the place of a value: how to make it when somebody looks at it, as mostly nobody does."""

    make: Callable[[], Any]


class Cause(Record, kw_only=True, eq=False):
    """What every handler gets."""

    logger: Logger
    memo: Any
    """The memo itself, or it can be :class:`Deferred`."""
    indices: Mapping[str, Any]
    _kwargs: Kwargs | None = None

    @property
    def kwargs(self) -> Kwargs:
        """The kwargs for all handlers of this cause, made once; they must not be modified."""
        if self._kwargs is None:
            self._kwargs = self._make_kwargs()
            self._kwargs.update(self.indices)  # the indices have precedence over all kwargs, present and future
        return self._kwargs

    def _make_kwargs(self) -> Kwargs:
        return {"logger": self.logger, "memo": self.memo}

    def kwargs_for_filters(self, handler: Handler) -> Kwargs:
        """The kwargs for the callbacks of the handler's filters: they see the whole change, not of one field."""
        return {"param": handler.param, **self.kwargs}

    def kwargs_for(self, handler: Handler) -> Kwargs:
        """The kwargs for the handler, before it is known which attempt of it is executed."""
        return self.kwargs_for_filters(handler)

    def kwargs_read_by(self, handler: Handler) -> Kwargs:
        """The kwargs for the handler, where those can be absent that its function does not look at."""
        return self.kwargs_for(handler)


class ActivityCause(Cause, kw_only=True, eq=False):
    """Something happens to the operator."""

    activity: Activity
    settings: OperatorSettings

    def _make_kwargs(self) -> Kwargs:
        return {**super()._make_kwargs(), "activity": self.activity, "settings": self.settings}


def _get_memo(cause: Cause) -> Any:
    if type(cause.memo) is Deferred:
        cause.memo = cause.memo.make()
    return cause.memo


_KWARGS_OF_OBJECT: Mapping[str, Getter] = {
    "logger": attrgetter("logger"),
    "memo": _get_memo,
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
    """How to get each of the kwargs of the cause."""

    resource: Resource
    body: Body
    patch: Patch
    _decoded: dict[tuple[str, FieldPath, Decoder], Any] | None = None

    def _make_kwargs(self) -> Kwargs:
        return {name: get(self) for name, get in self.getters.items()}

    def decode(self, handler: ResourceHandler, fn: HandlerFn, kwargs: Kwargs) -> None:
        """
        Replace those of the kwargs by typed values that the function wants so; each is decoded once for the cause.

        Raises :class:`ModelMismatchError` if the object does not fit its model. The old state can be of an older model:
        then, there is none.
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
        Check that the object is as the function of the handler, and its callbacks, want it to be decoded.

        Raises :class:`ModelMismatchError` otherwise.
        """
        if handler.decoders is not None:
            self.decode(handler, handler.fn, self.kwargs_read_by(handler))
            for callback in handler.list_callbacks():
                self.decode(handler, callback, self.kwargs_for_filters(handler))

    def kwargs_read_by(self, handler: Handler) -> Kwargs:
        reads, getters = handler.reads, self.getters
        if reads is None or not reads.isdisjoint(self.indices):
            return self.kwargs_for(handler)
        kwargs: Kwargs = {"param": handler.param}
        for name in reads:
            if (get := getters.get(name)) is not None:
                kwargs[name] = get(self)
        return kwargs


class BackgroundCause(ResourceCause, kw_only=True, eq=False):
    """It is time for a daemon or a timer of an object."""

    getters: ClassVar[Mapping[str, Getter]] = {**_KWARGS_OF_OBJECT, "stopped": attrgetter("stopped")}

    stopped: object
    """How its function asks whether it is to exit."""


class WatchingCause(ResourceCause, kw_only=True, eq=False):
    """A raw event has arrived."""

    getters: ClassVar[Mapping[str, Getter]] = {**_KWARGS_OF_OBJECT, "type": attrgetter("type")}

    type: RawEventType

    def kwargs_for_filters(self, handler: Handler) -> Kwargs:
        kwargs = super().kwargs_for_filters(handler)
        if isinstance(handler, WatchingHandler) and handler.reads_event:  # mostly, nobody looks at it
            self._add_event(kwargs)
        return kwargs

    def kwargs_read_by(self, handler: Handler) -> Kwargs:
        kwargs = super().kwargs_read_by(handler)
        if handler.reads is not None and "event" in handler.reads:
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
    """The last handled state of an object, its current state, and what is different."""

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
    """Which handlers are to be called though the object itself has not changed."""
    get_change: Callable[[], Change]
    """How to get what has changed: it is decoded when somebody looks at it, and then kept."""
    _change: Change | None = None

    @property
    def change(self) -> Change:
        """What has changed."""
        if self._change is None:
            self._change = self.get_change()
        return self._change

    @property
    def old(self) -> BodyEssence | None:
        """The last handled state of the object; ``None`` if it was never handled."""
        return self.change.old

    @property
    def new(self) -> BodyEssence | None:
        """The current state of the object."""
        return self.change.new

    @property
    def diff(self) -> Diff:
        """What is different."""
        return self.change.diff

    def kwargs_read_by(self, handler: Handler) -> Kwargs:
        kwargs, reads = super().kwargs_read_by(handler), handler.reads
        path = handler.field or handler.scope if isinstance(handler, ChangingHandler) else ()
        if path and reads is not None and not reads.isdisjoint(_KWARGS_OF_FIELD):
            _narrow_to_field(kwargs, path, self)
        return kwargs

    def kwargs_for(self, handler: Handler) -> Kwargs:
        kwargs = super().kwargs_for(handler)
        if isinstance(handler, ChangingHandler) and handler.field:
            _narrow_to_field(kwargs, handler.field, self)
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
    """The object is going to be changed, and it is asked if it may be."""

    name: str | None
    """The name in the request: not all that is reviewed is an object with a name in it."""
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
    """What the handlers that only validate have put to their ``patch``: they cannot change anything."""

    def _make_kwargs(self) -> Kwargs:
        kwargs = super()._make_kwargs()
        kwargs["name"] = kwargs["name"] or self.name
        kwargs["namespace"] = kwargs["namespace"] or self.namespace
        return {
            **kwargs,
            "operation": self.operation,
            "subresource": self.subresource,
            "dryrun": self.dryrun,
            "userinfo": self.userinfo,
            "headers": self.headers,
            "sslpeer": self.sslpeer,
            "warnings": self.warnings,
            "old": self.old,
            "new": self.new,
            "diff": diff(self.old, self.new),
        }

    def kwargs_for(self, handler: Handler) -> Kwargs:
        kwargs = super().kwargs_for(handler)
        if isinstance(handler, WebhookHandler) and handler.field:
            _narrow_to_field(kwargs, handler.field, self)
        if not (isinstance(handler, WebhookHandler) and handler.type is WebhookType.MUTATING):
            kwargs.update({"patch": self.discarded, **self.indices})
        return kwargs

    def kwargs_read_by(self, handler: Handler) -> Kwargs:
        return self.kwargs_for(handler)  # they are not the same for all handlers


def _decode_old(decoder: Decoder, value: Any) -> Any:
    try:
        return decoder(value)
    except ModelMismatchError:
        return None


def _narrow_to_field(kwargs: Kwargs, path: FieldPath, cause: ChangingCause | WebhookCause) -> None:
    """The handlers of a field see the change of that field, not of the whole object."""
    old, new = resolve(cause.old, path), resolve(cause.new, path)
    kwargs.update({"old": old, "new": new, "diff": diff(old, new)})
    kwargs.update(cause.indices)
