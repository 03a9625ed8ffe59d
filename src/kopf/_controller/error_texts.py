"""Error texts: descriptions of errors that have stopped the work on an object, with the useful tracebacks."""

from __future__ import annotations

import asyncio

from kopf._client.errors import APIError, APINetworkError
from kopf._client.resources.patching import PatchConflict
from kopf._handlers.handler_errors import name_error
from kopf._values.user_functions import CallbackError

_API_ERRORS = (APIError, APINetworkError, PatchConflict)
"""Their texts are enough; other errors come from the users' or our code, and need their tracebacks."""


def describe_error(error: BaseException) -> tuple[str, BaseException | None]:
    """Describe the error; also return the error whose traceback to show, if it tells more."""
    if isinstance(error, CallbackError):
        return str(error), error.__cause__
    if isinstance(error, _API_ERRORS):
        return str(error), None
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: the handler has cancelled its own task", error
    return name_error(error), error
