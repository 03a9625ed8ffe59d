"""
The loggers of the objects being handled.

The messages about an object go through an :class:`ObjectLogger`, which attaches a reference to that object
to every log record. What becomes of the reference is up to the handlers & formatters of the logging system:
the text formats turn it into a prefix, the JSON format puts it under a key, and the event recorder posts
the message as a Kubernetes event for that object.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from kopf._settings.settings import OperatorSettings
from kopf._values.references import ObjectReference, build_object_reference

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""What handlers get as ``logger``."""

objects_logger = logging.getLogger("kopf.objects")


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """
    A logger of everything that is related to one object.

    Every record carries, as its attributes: ``k8s_ref`` -- a reference to the object (a dict, as in core/v1);
    ``settings`` -- the operator's settings; ``k8s_skip`` -- whether the message is never posted as an event.

    The reference is built when the first message is really logged: loggers are made for every handling
    cycle, and most of them log nothing.
    """

    k8s_skip = False
    isEnabledFor = staticmethod(objects_logger.isEnabledFor)  # with no detour: mostly, it is the only thing asked
    # What the base class would set for each of them anew:
    logger = objects_logger
    extra = None
    merge_extra = False

    def __init__(self, *, body: Mapping[str, Any], settings: OperatorSettings) -> None:
        self._body = body
        self._settings = settings
        self._extra: dict[str, Any] | None = None

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Attach the object's reference to the record; the explicit ``extra=`` is kept and has priority."""
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
    """The same as :class:`ObjectLogger`, but its messages are never posted as Kubernetes events."""

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
