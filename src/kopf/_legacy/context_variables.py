"""
The former context variables: what is being handled right now, and the queue of Kubernetes events.

The queue was taken from a context variable in one thread or task, to be set in another one. It is the recorder of the
operator that is carried so. Whoever sets a queue of their own, gets the events: e.g. in tests.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, Protocol, cast

from kopf._events.recorder import EventSink, current_recorder
from kopf._handlers.causes import ChangingCause
from kopf._handlers.current_handler import SubhandlingContext, current_subhandling
from kopf._handlers.handlers import ChangingHandler
from kopf._settings.settings import OperatorSettings
from kopf._values.references import ObjectReference


class _Variable(abc.ABC):
    """It is only read: what is handled, is up to the framework."""

    def get(self, *default: Any) -> Any:
        """Get the value, or the default. With no default, raises :class:`LookupError` outside of handlers."""
        context = current_subhandling.get(None)
        if context is not None:
            return self._pick(context)
        if default:
            return default[0]
        raise LookupError("No change of any object is being handled here.")

    @abc.abstractmethod
    def _pick(self, context: SubhandlingContext) -> object: ...


class _CauseVariable(_Variable):
    def _pick(self, context: SubhandlingContext) -> ChangingCause:
        return context.cause


class _HandlerVariable(_Variable):
    def _pick(self, context: SubhandlingContext) -> ChangingHandler:
        return context.parent


@contextlib.contextmanager
def context(values: Iterable[tuple[ContextVar[Any], Any]]) -> Iterator[None]:
    """Set context variables for the time of the block."""
    tokens = [(variable, variable.set(value)) for variable, value in values]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


cause_var = _CauseVariable()
handler_var = _HandlerVariable()


class K8sEvent(NamedTuple):
    """An event to be posted."""

    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: float | Iterable[float] = ()


class _Queue(Protocol):
    def put_nowait(self, item: K8sEvent, /) -> None: ...


class _RecorderAsQueue:
    """What is put, is posted."""

    def __init__(self, recorder: EventSink) -> None:
        self.recorder = recorder

    def put_nowait(self, item: K8sEvent, /) -> None:
        self.recorder.enqueue(**item._asdict())


class _QueueAsRecorder:
    """What is posted, is put."""

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue

    @property
    def settings(self) -> OperatorSettings:
        return _settings.get(_DEFAULT_SETTINGS)

    def enqueue(self, ref: ObjectReference, *, is_explicit: bool = True, **fields: Any) -> None:
        self._queue.put_nowait(K8sEvent(ref, **fields))


_DEFAULT_SETTINGS = OperatorSettings()
_settings: ContextVar[OperatorSettings] = ContextVar("settings")


class _QueueVariable:
    """The recorder of this context in the shape of a queue."""

    def get(self, *default: Any) -> Any:
        """Get the queue, or the default. With no default, raises :class:`LookupError` outside of operators."""
        recorder = current_recorder.get(None)
        if recorder is None and default:
            return default[0]
        return _RecorderAsQueue(current_recorder.get())

    def set(self, queue: _RecorderAsQueue | _Queue) -> Token[EventSink]:
        """Let the events of this context go to the queue: one of an operator, or one's own."""
        if isinstance(queue, _RecorderAsQueue):
            return current_recorder.set(queue.recorder)
        return current_recorder.set(cast(EventSink, _QueueAsRecorder(queue)))

    def reset(self, token: Token[EventSink]) -> None:
        """Undo the setting."""
        current_recorder.reset(token)


class _SettingsVariable:
    """The settings of the operator of this context; what is set, is used with one's own queue."""

    def get(self, *default: Any) -> Any:
        """Get the settings, or the default. With no default, raises :class:`LookupError` outside of operators."""
        recorder = current_recorder.get(None)
        return _settings.get(*default) if recorder is None else recorder.settings

    def set(self, settings: OperatorSettings) -> Token[OperatorSettings]:
        """Use these settings with one's own queue."""
        return _settings.set(settings)

    def reset(self, token: Token[OperatorSettings]) -> None:
        """Undo the setting."""
        _settings.reset(token)


event_queue_var = _QueueVariable()
settings_var = _SettingsVariable()
event_queue_loop_var: ContextVar[asyncio.AbstractEventLoop] = ContextVar("event_queue_loop_var")
"""It can be set, but there is no need in that: events are posted from any thread."""


def enqueue(ref: ObjectReference, type: str, reason: str, message: str, backoffs: float | Iterable[float] = ()) -> None:
    """Post an event, whatever the settings are. Raises :class:`LookupError` outside of operators."""
    current_recorder.get().enqueue(ref, type=type, reason=reason, message=message, backoffs=backoffs)
