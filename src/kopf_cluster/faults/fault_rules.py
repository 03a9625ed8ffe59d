"""
The rules of faults: their requests, their actions, and refusals in the words of a real server.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from kopf_cluster import statuses
from kopf_cluster.faults.clients import check_pattern, is_guarded, is_of
from kopf_cluster.requests import Call, Request

Action = Literal["answer", "disconnect", "lose-answer", "delay"]

VERBS: Final = frozenset(
    {
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "head",
        "options",
    }
)


class FaultRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that applies to all requests that match all of its criteria; an absent criterion matches all requests.

    The action ``answer`` refuses the request with the status; ``disconnect`` breaks the connection before the request
    takes effect, ``lose-answer`` afterwards; ``delay`` only slows it down. Any action can have a latency.

    Raises `ValueError` for rates, statuses, numbers, verbs, and regular expressions that are not valid.
    """

    action: Action = "answer"
    status: int = 500
    """The HTTP status of the refusal, from 400 to 599."""
    rate: float = 1.0
    """The share of the matching requests, from 0 to 1."""
    times: int | None = None
    """The maximal number of times; unlimited by default."""
    latency: float = 0.0
    """The delay before the action, in seconds."""
    retry_after: int | None = None
    """The header ``Retry-After`` of the refusal, in seconds; absent by default, but 1 for the status 429."""
    message: str = ""
    """The message of the refusal; by default, that of a real server for the status."""
    verb: str | None = None
    """The verb of the API: get, list, watch, create, update, patch, delete, deletecollection."""
    resource: str | None = None
    """The plural name, if needed with the group and the subresource: ``pods``, ``pods/status``, ``deployments.apps``,
    ``deployments.apps/status``.
    """
    method: str | None = None
    """The method of HTTP."""
    path: str | None = None
    """A regular expression to find in the path."""
    guarded: bool | None = None
    """Whether the write names the expected version of the object, and so expects conflicts."""
    user: str | None = None
    """The name of the user: ``kubernetes-admin``, ``system:serviceaccount:default:operator``."""
    agent: str | None = None
    """A regular expression to find in the header ``User-Agent``."""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"the rate must be from 0 to 1, not {self.rate}")
        if not 400 <= self.status <= 599:
            raise ValueError(f"the status must be from 400 to 599, not {self.status}")
        if self.latency < 0 or (self.times is not None and self.times < 0):
            raise ValueError("neither the latency nor the number of times can be negative")
        if self.verb is not None and self.verb not in VERBS:
            raise ValueError(f"there is no verb {self.verb!r}; it is one of {', '.join(sorted(VERBS))}")
        check_pattern(self.path)
        check_pattern(self.agent)

    def matches(self, call: Call, request: Request, path: str) -> bool:
        """Tell if the request (with its ``call`` of the API and its ``path``) matches all criteria."""
        return (
            (self.verb is None or self.verb == call.verb)
            and (self.resource is None or self.resource in (call.resource, _full_resource(call)))
            and (self.method is None or self.method.upper() == request.method)
            and (self.path is None or re.search(self.path, path) is not None)
            and is_of(request, self.user, self.agent)
            and (self.guarded is None or self.guarded == is_guarded(request))
        )

    def make_status(self) -> statuses.APIStatus:
        """Make the refusal of a real server with this status."""
        reason, message = _REASONS.get(self.status, ("", "the server has refused the request on demand"))
        retry_after = 1 if self.retry_after is None and self.status == 429 else self.retry_after
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        details = {} if retry_after is None else {"retryAfterSeconds": retry_after}
        return statuses.APIStatus(self.status, reason, self.message or message, details=details, headers=headers)


def _full_resource(call: Call) -> str:
    """Return the resource with its group: ``deployments.apps/status``."""
    full = f"{call.plural}.{call.group}" if call.group else call.plural
    return f"{full}/{call.subresource}" if call.subresource else full


_REASONS: Final[dict[int, tuple[str, str]]] = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden: this request is refused on demand"),
    404: ("NotFound", statuses.SERVER_COULD_NOT_FIND),
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    413: ("RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: this request fails on demand"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted"),
}
