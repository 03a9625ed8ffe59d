"""
The API client of the operator that is running in this context, for the tools that are handed to its author.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from kopf._client.http.api import APIClient

_current_api: ContextVar[APIClient] = ContextVar("current_api")


@contextlib.contextmanager
def offering(api: APIClient) -> Iterator[None]:
    """Let the tools in this context, and in the tasks that are started from it, use this client."""
    token = _current_api.set(api)
    try:
        yield
    finally:
        _current_api.reset(token)


def get_current_api() -> APIClient:
    """Get the client of the current operator. Raises :class:`LookupError` if it is called outside of operators."""
    try:
        return _current_api.get()
    except LookupError:
        raise LookupError("It needs the API of Kubernetes, so it works only inside of a running operator.") from None
