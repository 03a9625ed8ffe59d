"""
Refusals in the words of kube-apiserver: a code, a reason, a message, and details in a `Status` object.

The wording and the structure follow the responses of `k8s.io/apimachinery/pkg/api/errors`: clients parse the fields,
people read the messages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

SERVER_COULD_NOT_FIND: Final = "the server could not find the requested resource"

MAX_ERRORS: Final = 1000
"""The maximal number of reported errors of one object."""


class Named(Protocol):
    """The names of a kind in errors."""

    @property
    def group(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def plural(self) -> str: ...


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """The names in errors of something that is no kind of objects: options, scales, bindings."""

    group: str = ""
    version: str = "v1"
    kind: str = ""
    plural: str = ""


class FieldError(msgspec.Struct, frozen=True):
    """One wrong field: its path, a machine-readable reason, and the text after the path."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


class APIStatus(Exception):
    """A refusal of a request by the local cluster, which it sends as a `Status` object.

    * ``code``: the HTTP status, e.g. 409.
    * ``reason``: the machine-readable reason, e.g. ``Conflict``.
    * ``message``: the text for people.
    * ``details``: the ``details`` of the `Status` object; none by default.
    * ``headers``: more headers of the response; none by default.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def as_object(self) -> dict[str, Any]:
        """Build the `Status` object that the server sends."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = dict(self.details)
        return {**status, "code": self.code}


class Undecodable(APIStatus):
    """A refusal (400) of an object whose values do not fit the types of its kind."""

    def __init__(self, kind: str, version: str, why: str) -> None:
        super().__init__(400, "BadRequest", f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
        self.why = why


def quoted(value: Any) -> str:
    """Format a value as Go's `%v` with quoted strings does in field errors."""
    if isinstance(value, (dict, list, str)) or value is None:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def duplicate_value(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def not_found_value(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {quoted(value)}")


def too_long(field: str, most: int) -> FieldError:
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def too_many(field: str, actual: int, most: int) -> FieldError:
    return FieldError(field, "FieldValueTooMany", f"Too many: {actual}: must have at most {most} items")


def unsupported_value(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    values = ", ".join(f'"{one}"' for one in supported)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {values}"
    )


def forbidden_value(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def needed(field: str, value: Any, detail: str = "") -> Iterator[FieldError]:
    """Refuse an empty field."""
    if not value:
        yield required(field, detail)


def one_of(field: str, value: Any, supported: Collection[str]) -> Iterator[FieldError]:
    """Refuse any other value."""
    if value not in supported:
        yield unsupported_value(field, value, supported)


def invalid_values(field: str, value: Any, reasons: Iterable[str]) -> Iterator[FieldError]:
    """Refuse the value for each of the reasons."""
    for why in reasons:
        yield invalid_value(field, value, why)


def group_resource(named: Named) -> str:
    return f"{named.plural}.{named.group}" if named.group else named.plural


def _details(named: Named, name: str, **extra: Any) -> dict[str, Any]:
    details = {"name": name, "group": named.group, "kind": named.plural, **extra}
    return {key: value for key, value in details.items() if value}


def unauthorized() -> APIStatus:
    return APIStatus(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> APIStatus:
    return APIStatus(400, "BadRequest", message)


def forbidden(named: Named, name: str, why: str, causes: list[dict[str, str]] | None = None) -> APIStatus:
    return APIStatus(
        403,
        "Forbidden",
        f'{group_resource(named)} "{name}" is forbidden: {why}',
        details=_details(named, name, causes=causes),
    )


def unknown_path() -> APIStatus:
    return APIStatus(404, "NotFound", SERVER_COULD_NOT_FIND, details={})


def not_found(named: Named, name: str) -> APIStatus:
    return APIStatus(404, "NotFound", f'{group_resource(named)} "{name}" not found', details=_details(named, name))


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> APIStatus:
    return APIStatus(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Iterable[str]) -> APIStatus:
    return APIStatus(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}")


def already_exists(named: Named, name: str, *, is_ending: bool = False) -> APIStatus:
    text = f'{group_resource(named)} "{name}" already exists'
    if is_ending:
        text = f"object is being deleted: {text}"
    return APIStatus(409, "AlreadyExists", text, details=_details(named, name))


def conflict(named: Named, name: str, why: str) -> APIStatus:
    return APIStatus(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {group_resource(named)} "{name}": {why}',
        details=_details(named, name),
    )


def modified(named: Named, name: str) -> APIStatus:
    return conflict(
        named, name, "the object has been modified; please apply your changes to the latest version and try again"
    )


def expired(message: str) -> APIStatus:
    return APIStatus(410, "Expired", message)


def too_large(message: str) -> APIStatus:
    return APIStatus(413, "RequestEntityTooLarge", message)


def unsupported_media(accepted: Iterable[str]) -> APIStatus:
    return APIStatus(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )


def invalid(named: Named, name: str, errors: list[FieldError]) -> APIStatus:
    """Refuse an object for its errors; only the first errors are reported if there are too many."""
    errors = errors[:MAX_ERRORS]
    kind = f"{named.kind}.{named.group}" if named.group else named.kind
    text = str(errors[0]) if len(errors) == 1 else f"[{', '.join(map(str, errors))}]"
    causes = [{"reason": error.reason, "message": error.text, "field": error.field} for error in errors]
    details = {"name": name, "group": named.group, "kind": named.kind, "causes": causes}
    return APIStatus(
        422,
        "Invalid",
        f'{kind} "{name}" is invalid: {text}',
        details={key: value for key, value in details.items() if value},
    )


def require_valid(named: Named, name: str, errors: Iterable[FieldError]) -> None:
    """Raise the refusal (422) of an object if there are errors in it."""
    if found := list(errors):
        raise invalid(named, name, found)


def unprocessable() -> APIStatus:
    return APIStatus(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def internal(message: str) -> APIStatus:
    return APIStatus(
        500, "InternalError", f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def unknown_error(message: str) -> APIStatus:
    """An error of the storage, without a reason."""
    return APIStatus(500, "", message)


def not_implemented(what: str) -> APIStatus:
    """Refuse a request that the local cluster does not support."""
    return APIStatus(501, "NotImplemented", f"{what} is not supported by the local cluster", details={})


def resource_version_too_large(requested: int, current: int) -> APIStatus:
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return APIStatus(
        504, "Timeout", message, details={"causes": causes, "retryAfterSeconds": 1}, headers={"Retry-After": "1"}
    )
