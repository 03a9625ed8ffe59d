"""
Admission reviews: the requests to webhooks, and their answers.

The structures follow ``admission.k8s.io/v1`` (and ``v1beta1``, which is the same in all that matters).
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from kopf_cluster import codec, patches, statuses
from kopf_cluster.admission.configurations import Attributes, Webhook
from kopf_cluster.kinds import scales
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.requests import asking

_Shown: TypeAlias = Kind | statuses.Naming | Subresource
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


class ReviewError(Exception):
    """The answer of a webhook cannot be used."""


class Result(msgspec.Struct):
    """The status in an answer, for a denied operation."""

    code: int = 0
    message: str = ""
    reason: str = ""
    details: dict[str, Any] | None = None


class Response(msgspec.Struct):
    """The answer of a webhook."""

    uid: str = ""
    allowed: bool = False
    status: Result | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: Sequence[str] | None = None
    auditAnnotations: Mapping[str, str] | None = None


class _Review(msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    response: Response | None = None


def make_review(webhook: Webhook, attributes: Attributes, kind: Kind) -> Obj:
    """Make the review; its objects are in the given version of the kind."""
    asked = attributes.kind
    shown, requested = _kinds_of(attributes, kind)
    request: Obj = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": shown.group, "version": shown.version, "kind": shown.kind},
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "subResource": attributes.subresource,
        "requestKind": {"group": requested.group, "version": requested.version, "kind": requested.kind},
        "requestResource": {"group": asked.group, "version": asked.version, "resource": asked.plural},
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.namespace,
        "operation": attributes.operation,
        "userInfo": asking.get().as_object(),
        "object": _show(attributes.obj, kind, attributes),
        "oldObject": _show(attributes.old, kind, attributes),
        "dryRun": attributes.dry_run,
        "options": None
        if attributes.operation == "CONNECT"
        else {"kind": _OPTIONS[attributes.operation], "apiVersion": "meta.k8s.io/v1"}
        | ({"dryRun": ["All"]} if attributes.dry_run else {}),
    }
    absent = ("subResource", "requestSubResource", "name", "namespace")
    request = {key: value for key, value in request.items() if value or key not in absent}
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{webhook.review_version}", "request": request}


def _kinds_of(attributes: Attributes, kind: Kind) -> tuple[_Shown, _Shown]:
    """Return the kind of the object in the review, and the kind of the request."""
    if attributes.operation == "CONNECT":
        return (attributes.kind.listed_subresources[attributes.subresource],) * 2
    return (scales.SCALE,) * 2 if _is_scale(attributes) else (kind, attributes.kind)


def _is_scale(attributes: Attributes) -> bool:
    return attributes.subresource == "scale" and attributes.kind.scale is not None


def _show(obj: Obj | None, kind: Kind, attributes: Attributes) -> Obj | None:
    """Show the object in a version of its kind: with no conversion, only the version itself differs."""
    if obj is None or attributes.operation == "CONNECT":
        return obj
    if attributes.subresource == "scale" and kind.scale is not None:
        return scales.show(obj, kind.scale)
    return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}


def take_back(reviewed: Obj | None, attributes: Attributes) -> Obj | None:
    """Return the object of the request as it is after the review."""
    if reviewed is None or attributes.operation == "CONNECT":
        return reviewed
    if attributes.subresource == "scale" and attributes.kind.scale is not None and attributes.obj is not None:
        return scales.take(reviewed, attributes.obj, attributes.kind.scale)
    return {**reviewed, "apiVersion": attributes.kind.api_version, "kind": attributes.kind.kind}


def read_response(webhook: Webhook, review: Obj, body: bytes) -> Response:
    """Read the answer, or raise `ReviewError` if it is not an answer to this review."""
    try:
        answer = msgspec.json.decode(body, type=_Review)
    except msgspec.MsgspecError as error:
        raise ReviewError(f"received invalid webhook response: {error}") from None
    expected = review["apiVersion"]
    if answer.response is None:
        raise ReviewError(
            "received invalid webhook response: webhook response is missing"
            if answer.kind
            else "received invalid webhook response: expected webhook response of "
            f"{expected}, Kind=AdmissionReview, got , Kind="
        )
    if webhook.review_version == "v1":
        got = f"{answer.apiVersion}, Kind={answer.kind}"
        if got != f"{expected}, Kind=AdmissionReview":
            raise ReviewError(
                "received invalid webhook response: expected webhook response of "
                f"{expected}, Kind=AdmissionReview, got {got}"
            )
        uid = review["request"]["uid"]
        if answer.response.uid != uid:
            raise ReviewError(
                f'received invalid webhook response: expected response.uid="{uid}", got "{answer.response.uid}"'
            )
    return answer.response


def apply_patch(response: Response, obj: Obj) -> Obj:
    """Return the object as the webhook wants it, or raise `ReviewError`."""
    if not response.patch:
        return obj
    if (response.patchType or "JSONPatch") != "JSONPatch":
        raise ReviewError(f'webhook returned response.patchType "{response.patchType}", but only JSONPatch is known')
    try:
        patched = patches.json_patch(obj, codec.decode(base64.b64decode(response.patch, validate=True)))
    except (binascii.Error, codec.DecodeError, statuses.APIStatus) as error:
        raise ReviewError(f"the patch of the webhook cannot be applied: {error}") from None
    if not isinstance(patched, dict):
        raise ReviewError("the patch of the webhook makes something else than an object")
    return patched


def deny(webhook: Webhook, result: Result | None) -> statuses.APIStatus:
    """Refuse the operation in the words of the webhook."""
    result = result or Result()
    denied = f'admission webhook "{webhook.name}" denied the request'
    why = result.message or result.reason
    message = f"{denied}: {why}" if why else f"{denied} without explanation"
    return statuses.APIStatus(max(result.code, 400), result.reason, message, details=result.details)
