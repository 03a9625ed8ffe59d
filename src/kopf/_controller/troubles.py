"""
Troubles: what to say when an object could not be handled, and for how long to leave it alone.

The same trouble is told once: for an object, if it is of the object; for a namespace, if it is a missing permission.
"""

from __future__ import annotations

import itertools
import logging

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
        if isinstance(error, APIForbiddenError):
            self._explain_denial(error, obj.head.namespace)
            is_known = True  # it is the same for all objects
        culprit = error.__cause__ if isinstance(error, FilterError) else None if is_told else error
        ObjectLogger(body=obj, settings=self._runtime.settings).log(
            logging.DEBUG if is_known else logging.ERROR,
            "The object could not be handled, so it is left alone for %s seconds: %s",
            delay,
            text,
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
