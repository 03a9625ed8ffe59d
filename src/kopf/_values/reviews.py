"""
Admission reviews: what the API server asks before it stores anything, what it is answered, and how it is called.

These are the types of the protocol between the webhook servers & tunnels and the operator. A server is an async
iterator over client configs; it gets a function to call with every review. The function raises only
:class:`ReviewError` for what cannot be answered; whatever the handlers do, is in the response.

See "Dynamic Admission Control" and ``admission.k8s.io/v1`` of the Kubernetes documentation.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypedDict, TypeVar

import msgspec

from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.reasons import Operation

Headers = Mapping[str, str]
"""All HTTP headers of the request with the review."""

SSLPeer = Mapping[str, Any]
"""The client certificate, as in :meth:`ssl.SSLSocket.getpeercert`."""


class WebhookClientConfigService(TypedDict, total=False):
    """The in-cluster service in front of the operator."""

    namespace: str | None
    name: str | None
    path: str | None
    port: int | None


class WebhookClientConfig(TypedDict, total=False):
    """
    How the API servers can reach the webhook server: the ``clientConfig`` of the managed configurations.

    Either ``url`` or ``service``. The ids of the handlers are appended to the path of it. ``caBundle`` is the
    base64-encoded PEM of the certificate authority; if absent, the API server's own trust chain is used.
    """

    caBundle: str | None
    url: str | None
    service: WebhookClientConfigService | None


class UserInfo(TypedDict, total=False):
    """Who makes the change, as authenticated by the API server; there can be more keys."""

    username: str
    uid: str
    groups: list[str]


class ResponseStatus(TypedDict, total=False):
    """Why the change is denied."""

    message: str
    code: int


class ResponsePayload(TypedDict, total=False):
    """The answer itself."""

    uid: str
    allowed: bool
    warnings: list[str]
    status: ResponseStatus
    patch: str
    patchType: Literal["JSONPatch"]


class Response(TypedDict):
    """An answered review: an ``AdmissionReview`` with the ``response`` in it; to be sent as JSON with HTTP 200."""

    apiVersion: str
    kind: str
    response: ResponsePayload


class WebhookFn(Protocol):
    """
    The function to be called by a webhook server with every review it has got; provided by the framework.

    ``request`` is the whole ``AdmissionReview``, parsed from JSON, not checked; those who have it in JSON, had better
    use :class:`EncodedReview`.

    ``webhook`` is what the path of the URL has in addition to the path in the client config, unquoted, and without
    the separating slash; ``None`` if there is nothing: then all matching handlers are called.

    It raises :class:`ReviewError` if the review cannot be answered (there is an HTTP status in it). The failures of
    the handlers are regular answers. If the client has gone or does not wait any longer, cancel the call.
    """

    async def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> Response: ...


class WebhookServerProtocol(Protocol):
    """
    A webhook server or tunnel: it listens for reviews and calls the function for them, until closed.

    It yields a client config when it is ready to serve, and again whenever that changes. It can also be an async
    context manager: then it is entered before it is called, and what the context manager returns is called.
    """

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]: ...


class ReviewError(Exception):
    """The review cannot be answered; it is the fault of who has sent it. ``status`` is for the HTTP response."""

    status: ClassVar[int] = 400


class MalformedReviewError(ReviewError):
    """It is not a review: some fields are absent or of wrong types. The text has no values of the fields."""


class TooLargeReviewError(ReviewError):
    """An object in it is larger than any that Kubernetes accepts."""

    status: ClassVar[int] = 413


class UnknownWebhookError(ReviewError):
    """There is no handler with such an id. Most likely, it is called by an outdated configuration."""

    status: ClassVar[int] = 404


class UnknownResourceError(ReviewError):
    """The cluster has no such resource, as far as is known, or no handlers are declared for it."""

    status: ClassVar[int] = 404


# Names go to the logs and into the paths of URLs. Most of them are stricter, but not those of RBAC.
_Name = Annotated[str, msgspec.Meta(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029/]*\Z")]

_Path = Annotated[str, msgspec.Meta(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")]
_NULL = msgspec.Raw(b"null")


class _GroupVersionResource(msgspec.Struct, frozen=True):
    version: _Name
    resource: _Name
    group: _Name = ""


class ReviewRequest(msgspec.Struct, kw_only=True, rename="camel"):
    """
    The request of a review, with its fields checked. The fields are as in ``admission.k8s.io``.

    The objects are not decoded: it is not known yet if anybody needs them, and they can be large.
    """

    uid: _Name
    resource: _GroupVersionResource
    operation: Operation
    name: _Name | None = None
    namespace: _Name | None = None
    sub_resource: _Path | None = None
    user_info: dict[str, Any] | None = None
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    dry_run: bool | None = None


class ConversionRequest(msgspec.Struct, kw_only=True, rename="camel"):
    """The request to convert objects to another version, with its fields checked, as in ``apiextensions.k8s.io``."""

    uid: _Name
    desired_version: _Path = msgspec.field(name="desiredAPIVersion")
    """With the group: ``example.com/v1``."""
    objects: list[dict[str, Any]]


_SUPPORTED_VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_KIND = "AdmissionReview"
_CONVERSION_VERSIONS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")
CONVERSION_KIND = "ConversionReview"


Request = TypeVar("Request", ReviewRequest, ConversionRequest)


class EncodedReview(Mapping[str, Any]):
    """
    A review as it came, in JSON; it is a usual mapping for those who look inside.

    ``max_object`` is the size of the largest object in it, in bytes.

    Raises :class:`MalformedReviewError` if it is not a JSON object.
    """

    __slots__ = ("_members", "_values", "max_object")

    def __init__(self, content: bytes, *, max_object: int | None = None) -> None:
        self.max_object = max_object
        try:
            self._members = _split(content)
        except msgspec.ValidationError:
            raise MalformedReviewError("The request is not an admission review: it must be a JSON object.") from None
        except (ValueError, RecursionError) as e:  # the text has positions, but no contents
            raise MalformedReviewError(f"The request is not a JSON document: {e}") from None
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            self._values[key] = codec.decode(self._members[key])
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def get_encoded(self, key: str) -> msgspec.Raw:
        """Get a member as it came; ``null`` if there is none."""
        return self._members.get(key, _NULL)


_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_request = msgspec.json.Decoder(ReviewRequest).decode
_decode_conversion = msgspec.json.Decoder(ConversionRequest).decode


def parse_review(payload: object) -> ReviewRequest:
    """Check the review and take the request of it. Raises :class:`ReviewError`."""
    request = _parse(payload, "A review", _KIND, _SUPPORTED_VERSIONS, _decode_request)
    return _check_sizes(request, payload.max_object) if isinstance(payload, EncodedReview) else request


def parse_conversion(payload: object) -> ConversionRequest:
    """Check the review of a conversion and take the request of it. Raises :class:`ReviewError`."""
    return _parse(payload, "A conversion", CONVERSION_KIND, _CONVERSION_VERSIONS, _decode_conversion)


def _parse(payload: object, what: str, kind: str, versions: Sequence[str], decode: Callable[[Any], Request]) -> Request:
    if not isinstance(payload, Mapping):
        raise MalformedReviewError(f"{what} must be a JSON object, got {type(payload).__name__}.")
    try:
        if payload.get("kind") != kind or payload.get("apiVersion") not in versions:
            raise MalformedReviewError(
                f"{what} must be of the kind {kind} and of the API version {' or '.join(versions)}."
            )
        if isinstance(payload, EncodedReview):
            return decode(payload.get_encoded("request"))
        return decode(codec.encode(payload.get("request")))
    except (ValueError, TypeError, RecursionError) as e:
        reason = re.sub(r"value '.*'", "value", str(e), flags=re.DOTALL)  # nothing of the content goes to the logs
        raise MalformedReviewError(f"The request of the review is malformed: {reason}") from None


def _check_sizes(request: ReviewRequest, max_object: int | None) -> ReviewRequest:
    largest = max(memoryview(raw).nbytes for raw in (request.object, request.old_object))
    if max_object is not None and largest > max_object:
        raise TooLargeReviewError(f"An object of the review is larger than {max_object} bytes.")
    return request


def decode_object(raw: msgspec.Raw) -> KubeObject | None:
    """Make an object of what is reviewed, if there is any. Raises :class:`MalformedReviewError`."""
    if bytes(memoryview(raw)[:5]).strip() == b"null":
        return None
    try:
        try:
            obj = KubeObject.from_json(raw)
            if obj.pruned:
                raise codec.NestingError
            return obj
        except codec.NestingError:
            raise
        except ValueError:  # not everything that is reviewed has metadata: e.g. the options of connections
            return KubeObject.from_dict(codec.decode(raw))
    except (ValueError, TypeError) as e:
        raise MalformedReviewError(f"The object of the review is malformed: {e}") from None


def make_response(
    payload: Mapping[str, Any],
    request: ReviewRequest,
    *,
    warnings: Iterable[str] = (),
    denial: ResponseStatus | None = None,
    patch: bytes | None = None,
) -> Response:
    """
    Answer the review: in the same version; allowed unless there is a reason to deny it.

    ``patch`` is a serialised JSON-patch.
    """
    response: ResponsePayload = {"uid": request.uid, "allowed": denial is None}
    if texts := [str(warning) for warning in warnings]:
        response["warnings"] = texts
    if denial is not None:
        response["status"] = denial
    elif patch:
        response["patch"] = base64.b64encode(patch).decode("ascii")
        response["patchType"] = "JSONPatch"
    return {"apiVersion": payload["apiVersion"], "kind": payload["kind"], "response": response}
