"""
The former context variables: the change that is being handled, and the queue of Kubernetes events.

Operators took the queue from a context variable in one thread or task, and set it in another one. Now, they carry the
recorder of the operator in this way. Code that sets a queue of its own, e.g. in tests, gets the events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, Protocol, cast

from kopf._events.log_posting import EventSink, current_recorder
from kopf._handlers.current_handler import current_subhandling
from kopf._settings.settings import OperatorSettings
from kopf._values.references import ObjectReference


class _Variable:
    """An attribute of the handling of a change in this context. It can only be read."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def get(self, *default: Any) -> Any:
        """Get the value, or the default. With no default, raises :class:`LookupError` outside of handlers."""
        context = current_subhandling.get(None)
        if context is not None:
            return getattr(context, self._attribute)
        if default:
            return default[0]
        raise LookupError("No change of any object is being handled here.")


@contextlib.contextmanager
def context(values: Iterable[tuple[ContextVar[Any], Any]]) -> Iterator[None]:
    """Set context variables during the block."""
    tokens = [(variable, variable.set(value)) for variable, value in values]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


cause_var = _Variable("cause")
handler_var = _Variable("parent")


class K8sEvent(NamedTuple):
    """An event to post."""

    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: float | Iterable[float] = ()


class _Queue(Protocol):
    def put_nowait(self, item: K8sEvent, /) -> None: ...


class _RecorderAsQueue:
    """A queue that posts the events put into it."""

    def __init__(self, recorder: EventSink) -> None:
        self.recorder = recorder

    def put_nowait(self, item: K8sEvent, /) -> None:
        self.recorder.enqueue(**item._asdict())


class _QueueAsRecorder:
    """A recorder that puts the posted events into a queue."""

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
    """The recorder of this context, as a queue."""

    def get(self, *default: Any) -> Any:
        """Get the queue, or the default. With no default, raises :class:`LookupError` outside of operators."""
        recorder = current_recorder.get(None)
        if recorder is None and default:
            return default[0]
        return _RecorderAsQueue(current_recorder.get())

    def set(self, queue: _RecorderAsQueue | _Queue) -> Token[EventSink]:
        """Send the events of this context to the queue: that of an operator, or any other one."""
        if isinstance(queue, _RecorderAsQueue):
            return current_recorder.set(queue.recorder)
        return current_recorder.set(cast(EventSink, _QueueAsRecorder(queue)))

    def reset(self, token: Token[EventSink]) -> None:
        """Undo the setting."""
        current_recorder.reset(token)


class _SettingsVariable:
    """The settings of the operator in this context. Settings that are set here apply to other queues."""

    def get(self, *default: Any) -> Any:
        """Get the settings, or the default. With no default, raises :class:`LookupError` outside of operators."""
        recorder = current_recorder.get(None)
        return _settings.get(*default) if recorder is None else recorder.settings

    def set(self, settings: OperatorSettings) -> Token[OperatorSettings]:
        """Use these settings with other queues."""
        return _settings.set(settings)

    def reset(self, token: Token[OperatorSettings]) -> None:
        """Undo the setting."""
        _settings.reset(token)


event_queue_var = _QueueVariable()
settings_var = _SettingsVariable()
event_queue_loop_var: ContextVar[asyncio.AbstractEventLoop] = ContextVar("event_queue_loop_var")
"""It can be set, but need not: events can be posted from any thread."""


def enqueue(ref: ObjectReference, type: str, reason: str, message: str, backoffs: float | Iterable[float] = ()) -> None:
    """Post an event regardless of the settings. Raises :class:`LookupError` outside of operators."""
    current_recorder.get().enqueue(ref, type=type, reason=reason, message=message, backoffs=backoffs)
