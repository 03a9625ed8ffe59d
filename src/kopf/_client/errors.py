"""
Errors of the Kubernetes API as typed exceptions: the HTTP status selects the class, the text says what was refused.

The server explains a refusal in a ``Status`` object (Kubernetes API conventions, "Response Status Kind"). Its
``reason`` is the machine-readable cause, its ``message`` is for people. Proxies and load balancers respond with pages
of their own, which the errors quote as short texts.
"""

from __future__ import annotations

import contextlib
import http
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._values import codec
from kopf._values.fields import FieldPath
from kopf._values.operator_error import OperatorError

_TEXT_LIMIT = 300
_UID_PRECONDITION = "UID in precondition"
_UNFIT = re.compile("failed to create typed (patch|live) object")
_TOO_LARGE = re.compile("etcdserver: request is too large|trying to send message larger than max")
"""The messages of wrong requests that come with the status 500: of server-side apply, and of etcd and its client."""
_PHRASES: Mapping[int, str] = {status: status.phrase for status in http.HTTPStatus}
_KEYS = re.compile(r"\[([^\]]*)\]|([^.\[\]<>]+)")
"""The keys in ``spec.items[0].name``, ``metadata.annotations[example.com/name]``; ``<nil>`` is the whole object."""


class APINetworkError(ConnectionError, OperatorError):
    """
    The request got no response: the connection could not be made, broke, or timed out.

    It is unknown whether the server has performed the request. The original error is in ``__cause__``.
    """

    is_told = False
    """Whether the logs already tell of the unreachable server, so that single requests need not repeat it."""
    server = ""
    """The URL of the server that did not respond."""


class APISilenceError(APINetworkError):
    """A response has begun, but nothing more came for too long: the server is lost, or has nothing to send."""


class APIError(OperatorError):
    """
    The API responded with an error. This is the base class of all such errors; see the subclasses.

    - ``status`` (int) is the HTTP status.
    - ``message`` (str), ``reason`` (str or ``None``), ``code`` (int or ``None``), and ``details`` (a mapping, empty by
      default) come from the ``Status`` object of the response. Without such an object, the message is the shortened
      text of the response.
    - ``headers`` (a mapping) are the headers of the response, with case-insensitive names.
    - ``method`` & ``path`` (str) describe the request.
    """

    is_in_doubt = False
    """Whether the server can have performed the request nevertheless, in this attempt or in an earlier one."""
    server = ""
    """The URL of the server that responded."""
    authors: Sequence[str] = ()
    """The handlers whose changes were refused, if the request was a patch and they are known."""

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
        reason = self.reason or _PHRASES.get(self.status, "")
        outcome = f"{self.status} {reason}".rstrip()
        authors = f" (patched by {', '.join(self.authors)})" if self.authors else ""
        return f"{request}{outcome}: {self.message}{authors}" if self.message else f"{request}{outcome}{authors}"

    @property
    def fields(self) -> list[FieldPath]:
        """The refused fields, if the server names any, as it does for objects that would be invalid."""
        causes = self.details.get("causes") or ()
        return [tuple(map("".join, _KEYS.findall(cause["field"]))) for cause in causes if "field" in cause]

    @property
    def is_unacceptable(self) -> bool:
        """Whether the request is wrong, or would make the object wrong: it is refused for as long as both are so."""
        return self.status == 400 or isinstance(self, APIPayloadTooLargeError | APIUnprocessableError)

    @property
    def is_identity_mismatch(self) -> bool:
        """Whether the UID in the request is that of another object with the same name: 409 or, for patches, 422."""
        return _UID_PRECONDITION in self.message or ("metadata", "uid") in self.fields

    @property
    def is_namespace_gone(self) -> bool:
        """Whether nothing can be created in the namespace anymore: it is being deleted, or does not exist."""
        causes = self.details.get("causes")
        causes = causes if isinstance(causes, list) else []
        is_terminating = any(isinstance(x, dict) and x.get("reason") == "NamespaceTerminating" for x in causes)
        return is_terminating or (self.status == 404 and self.details.get("kind") == "namespaces")


class APIClientError(APIError):
    """HTTP 4xx: the request is wrong, and repeating it does not help."""


class APIServerError(APIError):
    """HTTP 5xx: the server, or something on the way to it, has failed; the next attempt can succeed."""


class APIUnauthorizedError(APIClientError):
    """HTTP 401: the server does not accept the credentials."""


class APIForbiddenError(APIClientError):
    """HTTP 403: the server accepts the credentials, but they do not permit this request."""


class APINotFoundError(APIClientError):
    """HTTP 404: there is no such object or no such resource."""


class APIConflictError(APIClientError):
    """HTTP 409: the object already exists, or has changed in the meantime."""


class APIGoneError(APIClientError):
    """HTTP 410: the requested resource version, or the next page of the listing, is no longer available."""


class APIPayloadTooLargeError(APIClientError):
    """HTTP 413, or 500 if etcd refuses it: the object or the request is too large."""


class APIUnsupportedMediaTypeError(APIClientError):
    """HTTP 415: the resource does not support this kind of patch."""


class APIUnprocessableError(APIClientError):
    """
    HTTP 422, or 500 of server-side apply if an object does not fit its schema: the object would be invalid.

    It is also HTTP 422 if a JSON-patch does not apply, e.g. its test fails.
    """


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
    if status < 400:
        location = (headers or {}).get("Location", "").partition("?")[0]
        content: Mapping[str, Any] = {
            "message": f"Redirects are not followed; this one is to {shorten(location.encode())!r}."
        }
    else:
        content = _parse_status(body)
    reason, code, details = content.get("reason"), content.get("code"), content.get("details")
    message = str(content.get("message") or "")
    return _find_class(status, message)(
        message,
        status=status,
        method=method,
        path=path,
        reason=reason if reason and isinstance(reason, str) else None,
        code=code if isinstance(code, int) else None,
        details=details if isinstance(details, dict) else None,
        headers=headers,
    )


def _find_class(status: int, message: str) -> type[APIError]:
    if status == 500 and _UNFIT.match(message):
        return APIUnprocessableError
    if status == 500 and _TOO_LARGE.search(message):
        return APIPayloadTooLargeError
    return _CLASSES.get(status) or (APIServerError if status >= 500 else APIClientError if status >= 400 else APIError)


def _parse_status(body: bytes) -> Mapping[str, Any]:
    """Parse the ``Status`` object. Anything else did not come from Kubernetes: its text becomes the message."""
    with contextlib.suppress(ValueError):
        content = codec.decode_answer(body)
        if isinstance(content, dict) and content.get("kind") == "Status":
            return content
    return {"message": shorten(body)}


def shorten(body: bytes) -> str:
    """Turn the body of a response into a short text in one line."""
    text = " ".join(body.decode("utf-8", errors="replace").split())
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"
