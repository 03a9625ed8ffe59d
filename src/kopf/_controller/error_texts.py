"""Error texts: what is said of an error that has stopped the work on an object, and whose traceback goes with that."""

from __future__ import annotations

from kopf._client.errors import APIError, APINetworkError
from kopf._client.resources.patching import PatchConflict
from kopf._handlers.handler_errors import name_error
from kopf._values.user_functions import CallbackError

_API_ERRORS = (APIError, APINetworkError, PatchConflict)
"""They say it all; any other errors are of the users' code, or ours, and are shown with their tracebacks."""


def describe_error(error: BaseException) -> tuple[str, BaseException | None]:
    """Say what is wrong; also give the error whose traceback is to be shown, if that says more."""
    if isinstance(error, CallbackError):
        return str(error), error.__cause__
    if isinstance(error, _API_ERRORS):
        return str(error), None
    return name_error(error), error
