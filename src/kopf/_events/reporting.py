"""The public functions that report Kubernetes events."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._events.log_posting import current_recorder, get_event_type
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
    Post a Kubernetes event about one object or several objects, in the background.

    Nothing is posted if ``settings.posting.enabled`` is off, or about objects that are events themselves. Failures are
    only logged. Raises :class:`LookupError` outside of a running operator.

    :param objs: an object (a mapping with ``metadata``, e.g. ``body``), or several objects.
    :param type: usually ``"Normal"`` or ``"Warning"``.
    :param reason: a word in CamelCase, of up to 128 bytes; the type if it is empty.
    :param message: a text for people; empty by default. Texts over 1024 bytes lose their middle.
    :param backoffs: the delays between the attempts of the request, in seconds: a number, or several numbers; by
        default, ``settings.posting.default_backoffs``.
    """
    try:
        recorder = current_recorder.get()
    except LookupError:
        raise LookupError("Events can be posted only inside a running operator, by the code that it calls.") from None
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
    """
    Post an event of the type ``Normal``, in the background. For the arguments, see :func:`kopf.event`.

    Nothing is posted if ``settings.posting.level`` is higher than ``INFO``. Raises :class:`LookupError` outside of a
    running operator.
    """
    _event_of_level(objs, logging.INFO, reason, message, backoffs)


def warn(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reason: str,
    message: str = "",
    backoffs: Delays | None = None,
) -> None:
    """
    Post an event of the type ``Warning``, in the background. For the arguments, see :func:`kopf.event`.

    Nothing is posted if ``settings.posting.level`` is higher than ``WARNING``. Raises :class:`LookupError` outside of a
    running operator.
    """
    _event_of_level(objs, logging.WARNING, reason, message, backoffs)


def exception(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reason: str = "",
    message: str = "",
    exc: BaseException | None = None,
    backoffs: Delays | None = None,
) -> None:
    """
    Post an event of the type ``Error`` about an exception, in the background. See also :func:`kopf.event`.

    Nothing is posted if ``settings.posting.level`` is higher than ``ERROR``. Raises :class:`LookupError` outside of a
    running operator.

    :param reason: by default, the name of the class of the exception.
    :param message: the text before that of the exception; empty by default.
    :param exc: the exception; by default, the one that is being handled.
    """
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
