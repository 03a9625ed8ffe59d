"""
Troubles: what to say when an object could not be handled, and for how long to leave it alone.

The same trouble is told once: for an object, if it is of the object; for a namespace, if it is a missing permission.
"""

from __future__ import annotations

import itertools
import logging
import re

from kopf._client.errors import APIError, APIForbiddenError, APINetworkError
from kopf._client.resources.patching import PatchConflict
from kopf._controller.object_state import ObjectState
from kopf._controller.runtime import Runtime
from kopf._handlers.matching import FilterError
from kopf._logging.loggers import ObjectLogger
from kopf._settings.settings import iter_delays
from kopf._values.objects import KubeObject
from kopf._values.permissions import format_advice
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

API_ERRORS = (APIError, APINetworkError, PatchConflict)
"""They say it all; any other errors are of the users' code, or ours, and are shown with their tracebacks."""


_FULL_ANNOTATIONS = re.compile(r"metadata\.annotations: Too long", re.IGNORECASE)
_FULL_OBJECT = re.compile(r"request is too large|larger than max|limit is \d+", re.IGNORECASE)
"""The words of the API server for its own limit, of etcd, and of the connection to it (some come as HTTP 500)."""


class Troubles:
    """The troubles with the objects of one resource."""

    def __init__(self, runtime: Runtime, resource: Resource) -> None:
        self._runtime = runtime
        self._resource = resource

    def get_delay(self, errors: int) -> float:
        """For how long to leave the object alone after so many errors in a row, in seconds."""
        delays = iter_delays(self._runtime.settings.queueing.error_delays)
        delay = 0.0
        for delay in itertools.islice(delays, errors):  # noqa: B007  # the last one is used for all the next errors
            pass
        return delay

    def report(self, mailbox: ObjectState, obj: KubeObject, error: BaseException, delay: float) -> None:
        """Say it once: the same error again is not worth more than a debug message."""
        is_told = isinstance(error, (*API_ERRORS, FilterError))
        text = str(error) if is_told else f"{type(error).__name__}: {error}"
        is_known, mailbox.last_error = text == mailbox.last_error, text
        unsaved = mailbox.unsaved if isinstance(error, APIError) and _is_lasting(error) else None
        if isinstance(error, APIForbiddenError):
            self._explain_denial(error, obj.head.namespace)
            is_known = True  # it is the same for all objects
        culprit = error.__cause__ if isinstance(error, FilterError) else None if is_told else error
        ObjectLogger(body=obj, settings=self._runtime.settings).log(
            logging.DEBUG if is_known else logging.ERROR,
            "The object could not be handled, so it is left alone for %s seconds: %s",
            delay,
            text if unsaved is None else f"{text}. {_explain_loss(text)}",
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


def _explain_loss(text: str) -> str:
    """Say what comes of it if it can never be noted on the object what its handlers have done, and what the cure is."""
    if _FULL_ANNOTATIONS.search(text):
        cure = (
            "The annotations are full (256 KiB in total). Remove some of them; or leave out large fields & annotations "
            "with ignored_fields of settings.persistence.diffbase_storage; or use kopf.StatusDiffBaseStorage and "
            "kopf.StatusProgressStorage."
        )
    elif _FULL_OBJECT.search(text) or ": 413 " in text:
        cure = (
            "The object is too large with that. Make it smaller; or leave out large fields, with ignored_fields of "
            "settings.persistence.diffbase_storage."
        )
    else:
        cure = "The object must become such that the API accepts the changes, or the handlers must make other ones."
    return f"So what its handlers have done is not noted on it: after a restart, they will be called again. {cure}"
