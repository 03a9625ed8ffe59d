"""The functions to report Kubernetes events explicitly."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._events.recorder import current_recorder, get_event_type
from kopf._settings.settings import Delays
from kopf._values.references import build_object_reference


def event(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    type: str,
    reason: str,
    message: str = "",
    backoffs: Delays | None = None,
) -> None:
    """
    Post an event about one or several objects.

    It is posted in the background; nothing is posted if ``settings.posting.enabled`` is off, or for the objects which
    are events themselves. ``backoffs`` are for the retries of the request; by default, those of the settings.
    Raises :class:`LookupError` if it is called from outside of an operator.
    """
    try:
        recorder = current_recorder.get()
    except LookupError:
        raise LookupError("Events can only be posted by the code that is executed by a running operator.") from None
    settings = recorder.settings.posting
    if settings.enabled:
        for obj in [objs] if isinstance(objs, Mapping) else objs:
            recorder.enqueue(
                build_object_reference(obj),
                type=type,
                reason=reason,
                message=message,
                backoffs=settings.default_backoffs if backoffs is None else backoffs,
            )


def info(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reason: str,
    message: str = "",
    backoffs: Delays | None = None,
) -> None:
    """Post a normal event; not posted if ``settings.posting.level`` is higher than ``INFO``."""
    _event_of_level(objs, logging.INFO, reason, message, backoffs)


def warn(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reason: str,
    message: str = "",
    backoffs: Delays | None = None,
) -> None:
    """Post a warning; not posted if ``settings.posting.level`` is higher than ``WARNING``."""
    _event_of_level(objs, logging.WARNING, reason, message, backoffs)


def exception(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reason: str = "",
    message: str = "",
    exc: BaseException | None = None,
    backoffs: Delays | None = None,
) -> None:
    """Post an error with the exception: the specified one, or the one being handled now."""
    exc = exc if exc is not None else sys.exc_info()[1]
    description = "" if exc is None else "".join(traceback.format_exception_only(exc)).strip()
    text = " ".join(part for part in (message, str(exc or "") or description) if part)
    _event_of_level(objs, logging.ERROR, reason or (type(exc).__name__ if exc is not None else "Error"), text, backoffs)


def _event_of_level(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    level: int,
    reason: str,
    message: str,
    backoffs: Delays | None,
) -> None:
    recorder = current_recorder.get(None)
    if recorder is None or level >= recorder.settings.posting.level:
        event(objs, type=get_event_type(level), reason=reason, message=message, backoffs=backoffs)
