"""
The loggers of the handled objects.

Messages about an object go through an :class:`ObjectLogger`, which attaches a reference to the object to every log
record. The text formats turn the reference into a prefix, the JSON format puts it under a key, and the event recorder
posts the message as a Kubernetes event about the object.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from kopf._settings.settings import OperatorSettings
from kopf._values.references import ObjectReference, build_object_reference

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""The type of the kwarg ``logger`` of handlers."""

objects_logger = logging.getLogger("kopf.objects")


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """
    A logger of the messages about one object. Handlers get it as ``logger``.

    ``body`` is the object (a mapping with ``metadata``), ``settings`` are the settings of the operator.

    Every log record gets these attributes:

    - ``k8s_ref`` is a reference to the object (a dict, as in core/v1);
    - ``settings`` are the settings of the operator;
    - ``k8s_skip`` tells whether the message never becomes a Kubernetes event.

    The reference is built for the first message that is really logged: every pass over an object makes a logger, and
    most loggers log nothing.
    """

    k8s_skip = False
    isEnabledFor = staticmethod(objects_logger.isEnabledFor)  # a shortcut: mostly, this is the only call
    # The base class would set these for each logger anew:
    logger = objects_logger
    extra = None
    merge_extra = False

    def __init__(self, *, body: Mapping[str, Any], settings: OperatorSettings) -> None:
        self._body = body
        self._settings = settings
        self._extra: dict[str, Any] | None = None

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Attach the reference to the record. An explicit ``extra=`` is kept and takes precedence."""
        if self._extra is None:
            self._extra = {
                "settings": self._settings,
                "k8s_skip": self.k8s_skip,
                "k8s_ref": build_object_reference(self._body),
            }
        extra = kwargs.get("extra")
        kwargs["extra"] = {**self._extra, **extra} if extra else self._extra
        return msg, kwargs


class LocalObjectLogger(ObjectLogger):
    """The same as :class:`ObjectLogger`, but its messages never become Kubernetes events."""

    k8s_skip = True


def get_prefix(record: logging.LogRecord) -> str:
    """Get the prefix of the messages about an object: ``[namespace/name] ``; empty for all other messages."""
    return f"[{get_object_name(record)}] " if getattr(record, "k8s_ref", None) else ""


def get_object_name(record: logging.LogRecord) -> str:
    """Get the name of the object that the message is about, with its namespace; empty for all other messages."""
    ref: ObjectReference | None = getattr(record, "k8s_ref", None)
    if not ref:
        return ""
    namespace, name = ref.get("namespace"), ref.get("name", "")
    return f"{namespace}/{name}" if namespace else name
