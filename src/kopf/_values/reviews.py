"""
Admission reviews: the questions of the API server before it stores anything, and the answers.

These are the types of the protocol between webhook servers & tunnels and the operator. A server is an async iterator
over client configs; it gets a function, and calls it with every review. The function raises only :class:`ReviewError`,
for reviews that have no answer. The outcomes of handlers, errors included, are in the response.

See "Dynamic Admission Control" and ``admission.k8s.io/v1`` of the Kubernetes documentation.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, TypedDict, TypeVar

import msgspec

from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.reasons import Operation

_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

Headers = Mapping[str, str]
"""The HTTP headers of an admission request."""

SSLPeer = Mapping[str, Any]
"""The client certificate of an admission request, as in :meth:`ssl.SSLSocket.getpeercert`."""


class WebhookClientConfigService(TypedDict, total=False):
    """The service in the cluster that leads to the webhook server."""

    namespace: str | None
    """The namespace of the service."""
    name: str | None
    """The name of the service."""
    path: str | None
    """The beginning of the URL path."""
    port: int | None
    """The port of the service; 443 by default."""


class WebhookClientConfig(TypedDict, total=False):
    """
    The way from the API server to the webhook server: the ``clientConfig`` of webhook configurations.

    It has either ``url`` or ``service``; Kopf appends the ids of handlers to the path. ``caBundle`` is the PEM of the
    certificate authority in base64; without it, the API server trusts its own certificate authorities.
    """

    caBundle: str | None
    url: str | None
    service: WebhookClientConfigService | None


class UserInfo(TypedDict, total=False):
    """The user that makes the change, as authenticated by the API server. There can be more keys."""

    username: str
    """The name, e.g. ``system:serviceaccount:default:operator``."""
    uid: str
    """The identity; it differs for users who have had the same name at different times."""
    groups: list[str]
    """The names of the groups of the user, e.g. ``system:authenticated``."""


class ResponseStatus(TypedDict, total=False):
    """The reason of a denial."""

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
    """An ``AdmissionReview`` with its ``response``: the server sends it as JSON with HTTP 200."""

    apiVersion: str
    kind: str
    response: ResponsePayload


class WebhookFn(Protocol):
    """
    The function of Kopf that a webhook server calls with every review.

    ``request`` is the whole ``AdmissionReview``, parsed from JSON, unchecked. A server that has the JSON itself should
    pass :class:`EncodedReview` instead.

    ``webhook`` is the part of the URL's path after the path in the client config, unquoted, without the slash between
    them; ``None`` if there is no such part: then Kopf calls all matching handlers.

    ``headers`` are the HTTP headers of the request, ``sslpeer`` is the client certificate.

    Raises :class:`ReviewError` with an HTTP status if the review has no answer. Failures of handlers are regular
    answers. If the client has disconnected, cancel the call.
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
    A webhook server or tunnel: it listens for reviews, and calls the function with each one, until closed.

    It yields a client config when it is ready, and another one whenever the config changes. It can also be an async
    context manager: then Kopf enters it, and calls the result.
    """

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]: ...


class ReviewError(Exception):
    """The review has no answer, by the fault of its sender. ``status`` is the status of the HTTP response."""

    status: ClassVar[int] = 400


class MalformedReviewError(ReviewError):
    """It is not a review: fields are absent or of wrong types. The text contains no values of fields."""


class TooLargeReviewError(ReviewError):
    """The review has an object that is larger than Kubernetes accepts."""

    status: ClassVar[int] = 413


class UnknownWebhookError(ReviewError):
    """No handler has this id. Most likely, the webhook configuration is outdated."""

    status: ClassVar[int] = 404


class UnknownResourceError(ReviewError):
    """The resource is unknown, or it has no handlers."""

    status: ClassVar[int] = 404


# Names go to the logs and into the paths of URLs. Most are stricter, but not in RBAC.
_Name = Annotated[str, msgspec.Meta(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029/]*\Z")]

_Path = Annotated[str, msgspec.Meta(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")]
_NULL = msgspec.Raw(b"null")


class _GroupVersionResource(msgspec.Struct, frozen=True):
    version: _Name
    resource: _Name
    group: _Name = ""


class ReviewRequest(msgspec.Struct, kw_only=True, rename="camel"):
    """
    The request of a review, with checked fields, as in ``admission.k8s.io``.

    The objects are not decoded: they can be large, and possibly no handler needs them.
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
    """The request to convert objects to another version, with checked fields, as in ``apiextensions.k8s.io``."""

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
    A review in JSON, as it arrived: a mapping that is decoded on demand.

    ``max_object`` is the limit for each of its objects, in bytes.

    Raises :class:`MalformedReviewError` if it is not a JSON object.
    """

    __slots__ = ("_members", "_values", "max_object")

    def __init__(self, content: bytes, *, max_object: int | None = None) -> None:
        self.max_object = max_object
        try:
            self._members = _split(content)
        except msgspec.ValidationError:
            raise MalformedReviewError("The request is not an admission review: it must be a JSON object.") from None
        except (ValueError, RecursionError) as e:  # the text contains positions, but no values
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
        """Get a serialised member; ``null`` if there is none."""
        return self._members.get(key, _NULL)


_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_request = msgspec.json.Decoder(ReviewRequest).decode
_decode_conversion = msgspec.json.Decoder(ConversionRequest).decode


def parse_review(payload: object) -> ReviewRequest:
    """Check the review, and return its request. Raises :class:`ReviewError`."""
    request = _parse(payload, "A review", _KIND, _SUPPORTED_VERSIONS, _decode_request)
    limit = payload.max_object if isinstance(payload, EncodedReview) else None
    if limit is not None and any(memoryview(raw).nbytes > limit for raw in (request.object, request.old_object)):
        raise TooLargeReviewError(f"An object of the review is larger than {limit} bytes.")
    return request


def parse_conversion(payload: object) -> ConversionRequest:
    """Check the review of a conversion, and return its request. Raises :class:`ReviewError`."""
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
        reason = re.sub(r"value '.*'", "value", str(e), flags=re.DOTALL)  # no values go to the logs
        raise MalformedReviewError(f"The request of the review is malformed: {reason}") from None


def decode_object(raw: msgspec.Raw) -> KubeObject | None:
    """Decode a reviewed object; ``None`` if it is null. Raises :class:`MalformedReviewError`."""
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
        except ValueError:  # some reviewed objects have no metadata, e.g. the options of connections
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
    Answer the review in its version: the change is allowed if there is no ``denial``.

    ``patch`` is a serialised JSON patch. Line breaks in warnings become spaces: API servers drop a warning with them.
    """
    response: ResponsePayload = {"uid": request.uid, "allowed": denial is None}
    if texts := [_CONTROL_CHARACTERS.sub(" ", str(warning)) for warning in warnings]:
        response["warnings"] = texts
    if denial is not None:
        response["status"] = denial
    elif patch:
        response["patch"] = base64.b64encode(patch).decode("ascii")
        response["patchType"] = "JSONPatch"
    return {"apiVersion": payload["apiVersion"], "kind": payload["kind"], "response": response}
