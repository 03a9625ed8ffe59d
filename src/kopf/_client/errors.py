"""
Errors of the Kubernetes API as typed exceptions: the status decides on the class, the text says what was
refused.

The server explains its refusals in a ``Status`` object (Kubernetes API conventions, "Response Status Kind");
its ``reason`` is the machine-readable cause, and ``message`` is for humans. Whatever is not a ``Status``
(proxies and load balancers have their own pages) is quoted as text, shortened.
"""

from __future__ import annotations

import http
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._values import codec
from kopf._values.fields import FieldPath
from kopf._values.operator_error import OperatorError

_TEXT_LIMIT = 300
_KEYS = re.compile(r"\[([^\]]*)\]|([^.\[\]<>]+)")
"""The keys in ``spec.items[0].name``, ``metadata.annotations[example.com/name]``; ``<nil>`` is the whole object."""


class APINetworkError(ConnectionError, OperatorError):
    """
    The request has got no response: the connection cannot be made, was broken, or has timed out.

    Whether the server has performed the request is unknown. The original error is in ``__cause__``.
    """

    is_told = False
    """Whether it is already said in the logs, once for all requests: it is not to be said for each of them."""
    server = ""
    """The URL of the server that was asked."""


class APISilenceError(APINetworkError):
    """Nothing has come for too long of a response that has begun: the server is lost, or has nothing to say."""


class APIError(OperatorError):
    """
    The API has responded with an error.

    ``status`` is the HTTP status; ``reason``, ``message``, ``code``, ``details`` are of the ``Status`` object
    (the message is the shortened text of the response if there is no such object); ``headers`` are of the
    response, case-insensitive; ``method`` & ``path`` are of the request.
    """

    is_in_doubt = False
    """Whether the request could have been performed nevertheless: by this or an earlier attempt of it."""
    server = ""
    """The URL of the server that has responded."""
    authors: Sequence[str] = ()
    """Whose changes are refused, if it is a patch and they are known: the handlers."""

    def __init__(
        self,
        message: str = "",
        *,
        status: int,
        method: str = "",
        path: str = "",
        reason: str | None = None,
        code: int | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Large because each parameter is an attribute of the error; see the class."""
        super().__init__(message)
        self.message = message
        self.status = status
        self.method = method
        self.path = path
        self.reason = reason
        self.code = code
        self.details: Mapping[str, Any] = details or {}
        self.headers: Mapping[str, str] = headers or {}

    def __str__(self) -> str:
        request = f"{self.method} {self.path}: ".lstrip() if self.method or self.path else ""
        reason = self.reason or _get_phrase(self.status)
        outcome = f"{self.status} {reason}".rstrip()
        authors = f" (patched by {', '.join(self.authors)})" if self.authors else ""
        return f"{request}{outcome}: {self.message}{authors}" if self.message else f"{request}{outcome}{authors}"

    @property
    def fields(self) -> list[FieldPath]:
        """The fields that are refused, if the server names any: it does if the object would be invalid."""
        causes = self.details.get("causes") or ()
        return [tuple(map("".join, _KEYS.findall(cause["field"]))) for cause in causes if "field" in cause]


class APIClientError(APIError):
    """HTTP 4xx: the request is wrong, and repeating it does not help."""


class APIServerError(APIError):
    """HTTP 5xx: the server, or something on the way to it, has failed; it can be better next time."""


class APIUnauthorizedError(APIClientError):
    """HTTP 401: the credentials are not accepted."""


class APIForbiddenError(APIClientError):
    """HTTP 403: the credentials are accepted, but they do not permit this."""


class APINotFoundError(APIClientError):
    """HTTP 404: no such object, or no such resource."""


class APIConflictError(APIClientError):
    """HTTP 409: the object already exists, or was changed in the meantime."""


class APIGoneError(APIClientError):
    """
    HTTP 410: the requested resource version or the continuation of the listing is not available anymore.
    """


class APIPayloadTooLargeError(APIClientError):
    """HTTP 413: the object or the request is too large to be stored."""


class APIUnsupportedMediaTypeError(APIClientError):
    """HTTP 415: this kind of patch is not supported for this resource."""


class APIUnprocessableError(APIClientError):
    """HTTP 422: the object would be invalid, or a JSON-patch does not apply (e.g. its test fails)."""


class APITooManyRequestsError(APIClientError):
    """HTTP 429: the server asks to slow down."""


_CLASSES: Mapping[int, type[APIError]] = {
    401: APIUnauthorizedError,
    403: APIForbiddenError,
    404: APINotFoundError,
    409: APIConflictError,
    410: APIGoneError,
    413: APIPayloadTooLargeError,
    415: APIUnsupportedMediaTypeError,
    422: APIUnprocessableError,
    429: APITooManyRequestsError,
}


def make_error(
    *,
    status: int,
    method: str = "",
    path: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> APIError:
    """Make the error of the most specific class for an error response (status 400 and up) or a redirect."""
    cls = _CLASSES.get(status) or (APIServerError if status >= 500 else APIClientError if status >= 400 else APIError)
    content = _parse_status(body)
    if status < 400:
        where = (headers or {}).get("Location", "")
        message = f"Redirects are not followed; this one is to {shorten(where.partition('?')[0].encode())!r}."
        return cls(message, status=status, method=method, path=path, headers=headers)
    if content is None:
        return cls(shorten(body), status=status, method=method, path=path, headers=headers)
    reason, code, details = content.get("reason"), content.get("code"), content.get("details")
    return cls(
        str(content.get("message") or ""),
        status=status,
        method=method,
        path=path,
        reason=reason if reason and isinstance(reason, str) else None,
        code=code if isinstance(code, int) else None,
        details=details if isinstance(details, dict) else None,
        headers=headers,
    )


def _parse_status(body: bytes) -> Mapping[str, Any] | None:
    try:
        content = codec.decode_answer(body)
    except ValueError:  # not JSON: it does not come from Kubernetes, and the text is shown as it is
        return None
    return content if isinstance(content, dict) and content.get("kind") == "Status" else None


def shorten(body: bytes) -> str:
    """Make a short text in one line of whatever has come."""
    text = " ".join(body.decode("utf-8", errors="replace").split())
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"


def _get_phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:  # a non-standard status has no phrase
        return ""
