"""
Troubles: what to say when an object could not be handled.

The same trouble is told once: for an object, if it is of the object; for a namespace, if it is a missing permission.
"""

from __future__ import annotations

import logging
import re

from kopf._client.errors import APIError, APIForbiddenError, APINetworkError
from kopf._controller.blame import describe_trouble
from kopf._controller.large_objects import explain_full_annotations
from kopf._controller.runtime import Runtime
from kopf._logging.loggers import ObjectLogger
from kopf._logging.once import Once
from kopf._settings.settings import PersistenceSettings
from kopf._values.objects import KubeObject
from kopf._values.permissions import format_advice
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_FULL_ANNOTATIONS = re.compile(r"metadata\.annotations: Too long", re.IGNORECASE)
_FULL_OBJECT = re.compile(r"request is too large|larger than max|limit is \d+", re.IGNORECASE)
"""The words of the API server for its own limit, of etcd, and of the connection to it (some come as HTTP 500)."""


class Troubles:
    """The troubles with the objects of one resource."""

    def __init__(self, runtime: Runtime, resource: Resource) -> None:
        self._runtime = runtime
        self._resource = resource
        self._said = Once()
        self.forget = self._said.forget
        """Say by its key that the object is handled, or exists no more."""

    def __len__(self) -> int:
        """How many objects are in trouble."""
        return len(self._said)

    def report(
        self, key: str, obj: KubeObject, error: BaseException, *, delay: float | None, is_unsaved: bool
    ) -> None:
        """
        Say it once: the same error of the object again is not worth more than a debug message.

        Without the ``delay`` (in seconds), it is a conflict, and is not a trouble. If what the handlers have done
        ``is_unsaved``, it is said what follows from that.
        """
        object_logger = ObjectLogger(body=obj, settings=self._runtime.settings)
        if delay is None:
            object_logger.debug("The object has changed meanwhile; going on from its fresh state: %s", str(error))
            return
        text, culprit = describe_trouble(error)
        is_new = self._said.is_new(key, text)
        is_lost = is_unsaved and isinstance(error, APIError) and _is_lasting(error)
        if isinstance(error, APIForbiddenError):
            self._explain_denial(error, obj.head.namespace)
            is_new = False  # it is the same for all objects
        if isinstance(error, APINetworkError) and error.is_told:
            is_new = False
        object_logger.log(
            logging.ERROR if is_new else logging.DEBUG,
            "The object could not be handled, so it is left alone for %s seconds: %s",
            delay,
            f"{text}. {_explain_loss(text, obj, self._runtime.settings.persistence)}" if is_lost else text,
            exc_info=culprit,
        )

    def _explain_denial(self, error: APIForbiddenError, namespace: str | None) -> None:
        """Say once per namespace what is to be permitted, as it concerns all objects there."""
        verb = error.method.lower()
        subresource = "status" if error.path.endswith("/status") else None
        if self._runtime.warnings.is_new((self._resource, verb, subresource, namespace)):
            logger.error(
                "Cannot %s %r%s%s: not permitted. Other attempts will be made later. The error: %s. %s",
                verb,
                self._resource,
                "" if subresource is None else f" ({subresource})",
                "" if namespace is None else f" in the namespace {namespace!r}",
                error,
                format_advice(self._resource, [verb], namespace=namespace, subresource=subresource),
            )


def _is_lasting(error: APIError) -> bool:
    """Tell if the same changes can never be written, as long as the object & the handlers are what they are."""
    return error.status in (400, 413, 422) or _FULL_OBJECT.search(str(error)) is not None


def _explain_loss(text: str, obj: KubeObject, persistence: PersistenceSettings) -> str:
    """Say what comes of it if it can never be noted on the object what its handlers have done, and what the cure is."""
    if _FULL_ANNOTATIONS.search(text):
        cure = explain_full_annotations(obj, persistence)
    elif _FULL_OBJECT.search(text) or ": 413 " in text:
        cure = (
            "The object is too large with that. Make it smaller; or leave out large fields, with ignored_fields of "
            "settings.persistence.diffbase_storage."
        )
    else:
        cure = "The object must become such that the API accepts the changes, or the handlers must make other ones."
    return f"So what its handlers have done is not noted on it: after a restart, they will be called again. {cure}"
