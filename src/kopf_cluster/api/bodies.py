"""
The bodies of requests, decoded and checked for the right kind; and the options of writes.

Bodies are in JSON, YAML, or protobuf. Options are in the query; for deletions, in the body, if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
import yaml

from kopf_cluster import codec, encodings, json_fields, patches, sessions, statuses, yamls
from kopf_cluster.kinds.kind import Kind
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.protobuf import messages
from kopf_cluster.protobuf.messages import find_message
from kopf_cluster.protobuf.wire import ProtobufError
from kopf_cluster.requests import Request
from kopf_cluster.writes import owners
from kopf_cluster.writes.write_options import POLICIES, DeleteOptions, WriteOptions

JSON_TYPES: Final = ("application/json", "")
T = TypeVar("T")

_LARGE: Final = 64 * 1024
"""The minimal size of YAML, in bytes, that is decoded outside of the event loop, which answers others meanwhile."""

YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml")


Expected: TypeAlias = Kind | Subresource | statuses.Naming
"""The expected kind of an object."""


def read_object(expected: Expected, request: Request, *, implied: bool) -> dict[str, Any]:
    """Decode the object of a write, and check its kind, or add the kind if clients may omit it."""
    body = decode_body(request, expected)
    api_version = _api_version(expected)
    if implied:
        body["apiVersion"] = body.get("apiVersion") or api_version
        body["kind"] = body.get("kind") or expected.kind
    if not body.get("kind"):
        excerpt = request.body.decode(errors="replace")[:200]
        raise _unrecognized(expected.kind, f"Object 'Kind' is missing in '{excerpt}'")
    if not body.get("apiVersion"):
        raise _unrecognized(expected.kind, "couldn't get version/kind; 'apiVersion' is missing")
    if body["apiVersion"] != api_version:
        raise statuses.bad_request(
            f"the API version in the data ({body['apiVersion']}) does not match "
            f"the expected API version ({api_version})"
        )
    if body["kind"] != expected.kind:
        raise statuses.bad_request(
            f'{body["kind"]} in version "{expected.version}" cannot be handled as a {expected.kind}: '
            "the kind in the data does not match the expected kind"
        )
    return body


def _api_version(expected: Expected) -> str:
    return f"{expected.group}/{expected.version}" if expected.group else expected.version


def decode_body(request: Request, expected: Expected) -> dict[str, Any]:
    """Decode any object, or refuse other bodies. Only protobuf needs the expected kind."""
    what = expected.kind
    try:
        if request.content_type in JSON_TYPES:
            body = codec.decode(request.body)
        elif request.content_type == encodings.PROTOBUF:
            body = _decode_protobuf(request.body, expected)
        elif request.content_type in YAML_TYPES:
            body = _beside(yamls.load_json, request.body)
        else:
            raise statuses.unsupported_media(encodings.SERVED)
    except (codec.DecodeError, yaml.YAMLError, TypeError, RecursionError) as error:
        raise _unrecognized(
            what, f"couldn't get version/kind; json parse error: {error} ({_excerpt(request.body)})"
        ) from None
    if not isinstance(body, dict):
        raise _unrecognized(what, "couldn't get version/kind; json parse error: not a JSON object")
    return body


def _beside(decode: Callable[[bytes], T], body: bytes) -> T:
    """Decode a small text at once; decode a large one in a thread, and repeat the request afterwards."""
    if len(body) < _LARGE:
        return decode(body)
    decoded, error = sessions.ask((decode, body), lambda: asyncio.to_thread(yamls.attempt, decode, body))
    if error is not None:
        raise error
    return cast(T, decoded)


def _decode_protobuf(data: bytes, expected: Expected) -> dict[str, Any]:
    """Decode an object; of another kind, only its type."""
    try:
        envelope = messages.open_envelope(data)
    except ProtobufError as error:
        raise _unrecognized(expected.kind, f"{error} ({_excerpt(data)})") from None
    api_version, kind = envelope.api_version or _api_version(expected), envelope.kind or expected.kind
    message = find_message(_api_version(expected), expected.kind)
    try:
        if message is None:
            raise ProtobufError(f"object *unstructured.Unstructured {messages.NO_MESSAGE}")
        obj = message.decode(envelope.raw) if find_message(api_version, kind) is message else {}
    except ProtobufError as error:
        raise statuses.bad_request(
            f'{kind} in version "{api_version.rpartition("/")[2]}" cannot be handled as a {expected.kind}: {error}'
        ) from None
    return {"kind": kind, "apiVersion": api_version, **obj}


def _excerpt(data: bytes) -> str:
    return data[:30].hex() + (" ..." if len(data) > 30 else "")


def find_repeated(request: Request, *, strict: bool) -> list[str]:
    """Return notes on repeated fields in JSON or YAML.

    Raise the refusal of a strict applied configuration with repeated fields. Broken bodies have none here; they are
    refused when they are decoded.
    """
    applied = request.content_type == patches.APPLY
    if request.content_type in YAML_TYPES or applied:
        return _find_repeated_lines(request.body, strict=strict, applied=applied)
    if request.content_type not in JSON_TYPES and not request.content_type.endswith("+json"):
        return []
    return json_fields.find_repeated(request.body)


def _find_repeated_lines(body: bytes, *, strict: bool, applied: bool) -> list[str]:
    try:
        lines = _beside(yamls.find_repeated, body)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    if not lines or not strict:
        return lines
    text = "\n  ".join(["yaml: unmarshal errors:", *lines])
    if applied:
        raise statuses.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {text}")
    return [text]


def _unrecognized(what: str, why: str) -> statuses.APIStatus:
    return statuses.bad_request(f"the object provided is unrecognized (must be of type {what}): {why}")


class _Operation(msgspec.Struct):
    """The types of an operation of a JSON-patch."""

    op: str | None = None
    path: str | None = None
    source: str | None = msgspec.field(default=None, name="from")


def decode_patch(request: Request) -> Any:
    """Return the operations of a JSON-patch, or the object of other patches; refuse anything else."""
    is_json = request.content_type == patches.JSON
    try:
        patch = codec.decode(request.body)
        if patch is None and request.content_type != patches.MERGE:
            return [] if is_json else {}
        msgspec.convert(patch, list[_Operation | None] if is_json else dict[str, Any])
    except (codec.DecodeError, RecursionError) as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from None
    return [{} if item is None else item for item in patch] if is_json else patch


_VALIDATIONS: Final = ("Ignore", "Warn", "Strict")
_META: Final = "meta.k8s.io"
_OPTIONS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions"}


_DELETION: Final = statuses.Naming(group=_META, kind="DeleteOptions")


def write_options(request: Request) -> WriteOptions:
    """Read the options of a creation, an update, or a patch; refuse wrong ones."""
    validation = request.query.get("fieldValidation")
    named = statuses.Naming(group=_META, kind=_OPTIONS.get(request.method, "PatchOptions"))
    if validation:
        statuses.require_valid(named, "", statuses.one_of("fieldValidation", validation, _VALIDATIONS))
    if request.method == "PATCH" and request.flag("force") and request.content_type != patches.APPLY:
        raise statuses.invalid(
            named, "", [statuses.forbidden_value("force", "may not be specified for non-apply patch")]
        )
    warnings: list[str] = []
    is_checked = validation != "Ignore" and request.body
    repeated = find_repeated(request, strict=validation == "Strict") if is_checked else []
    return WriteOptions(
        dry_run=_is_dry_run(named, request.query.get("dryRun")),
        strict=validation == "Strict",
        repeated=tuple(repeated),
        text=request.body if request.method in ("POST", "PUT") and request.content_type in JSON_TYPES else b"",
        warnings=None if validation in ("Ignore", "Strict") else warnings,
        remarks=[],
        manager=_read_manager(named, request),
        patching=request.method == "PATCH",
    )


def _read_manager(named: statuses.Naming, request: Request) -> str:
    """Return the name of the field manager; by default, that of the program."""
    name = request.query.get("fieldManager", "")
    errors = owners.validate_name(name, applying=request.content_type == patches.APPLY)
    statuses.require_valid(named, "", errors)
    return name or owners.default_name(request.agent)


def _is_dry_run(named: statuses.Naming, value: str | None) -> bool:
    if value not in (None, "", "All"):
        raise statuses.invalid(named, "", [statuses.unsupported_value("dryRun", [value], ("All",))])
    return value == "All"


def delete_options(request: Request) -> DeleteOptions:
    """Read the options from the body; from the query if there is no body."""
    raw: dict[str, Any] = decode_body(request, _DELETION) if request.body else dict(request.query)
    if isinstance(raw.get("dryRun"), str):
        raw["dryRun"] = [raw["dryRun"]] if raw["dryRun"] else []
    return convert_delete_options(raw)


def convert_delete_options(raw: Any) -> DeleteOptions:
    """Make the options of a deletion; refuse wrong ones."""
    try:
        options = msgspec.convert(raw, DeleteOptions, strict=False)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(f"DeleteOptions cannot be decoded: {error}") from None
    statuses.require_valid(_DELETION, "", _validate_deletion(options))
    return options


def _validate_deletion(options: DeleteOptions) -> Iterator[statuses.FieldError]:
    policy = options.propagationPolicy
    if policy is not None and options.orphanDependents is not None:
        yield statuses.invalid_value(
            "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
        )
    if policy is not None and policy not in POLICIES:
        yield statuses.unsupported_value("propagationPolicy", policy, (*POLICIES, "nil"))
    if any(stage != "All" for stage in options.dryRun or ()):
        yield statuses.unsupported_value("dryRun", options.dryRun, ("All",))
