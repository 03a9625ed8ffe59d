"""
The Kubernetes API: from a request to its answer or stream, with every refusal raised as a status.

Everything is synchronous; only streams go on afterwards.
"""
from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from . import codec, objects, owners, patches, protobuf, statuses
from .access import Access
from .discovery import Discovery, need_kind
from .kinds.kind import Kind, Obj
from .kinds.registry import Registry
from .openapi import OpenAPI
from .reading import Reader
from .representations import negotiate
from .requests import Answer, Call, Request, Stream
from .storage import Record, Store
from .virtual import VirtualResources
from .writing import DeleteOptions, WriteOptions, Writer

VERSION: Final = {
    "major": "1", "minor": "36", "gitVersion": "v1.36.0+local", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": platform.python_implementation(),
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}
_HEALTH: Final = ("healthz", "livez", "readyz")
_JSON_TYPES: Final = ("application/json", "")
_YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml")
_BODY_TYPES: Final = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_UNSUPPORTED_SUBRESOURCES: Final[Mapping[str, frozenset[str]]] = {
    "pods": frozenset({"log", "exec", "attach", "portforward", "proxy", "binding", "eviction",
                       "ephemeralcontainers", "resize"}),
    "services": frozenset({"proxy"}),
    "nodes": frozenset({"proxy"}),
    "namespaces": frozenset({"finalize"}),
}
_SCALABLE: Final = frozenset({"deployments", "replicasets", "statefulsets", "replicationcontrollers"})


class API:
    """All that is served under the Kubernetes paths."""

    def __init__(self, store: Store, registry: Registry, writer: Writer, access: Access, *, address: str,
                 bookmark_interval: float) -> None:
        super().__init__()
        self._registry = registry
        self._writer = writer
        self._access = access
        self._virtual = VirtualResources(store, access)
        self._reader = Reader(store, bookmark_interval)
        self._discovery = Discovery(registry)
        self._openapi = OpenAPI(registry)
        self._address = address

    def answer(self, call: Call, request: Request) -> Answer | Stream:
        """Do what is asked, or raise the status with which it is refused."""
        self._access.authorize(call, request)
        if not call.plural:
            return self._answer_path(request)
        if call.verb == "create" and (answer := self._answer_virtually(call, request)) is not None:
            return answer
        kind = need_kind(self._registry, call.group, call.version, call.plural)
        self._check_scope(kind, call)
        if call.subresource:
            self._check_subresource(kind, call)
        match call.verb:
            case "get":
                return self._reader.get(kind, call, request)
            case "list":
                return self._reader.list_page(kind, call, request)
            case "watch":
                return self._reader.watch(kind, call, request)
            case "create":
                return self._create(kind, call, request)
            case "update":
                return self._update(kind, call, request)
            case "patch":
                return self._patch(kind, call, request)
            case "delete":
                return self._delete(kind, call, request)
            case "deletecollection":
                return self._delete_collection(kind, call, request)
        raise statuses.method_not_allowed()

    def _answer_virtually(self, call: Call, request: Request) -> Answer | None:
        """Answer if it is about a resource that is never stored."""
        kind = self._registry.find(call.group, call.version, call.plural)
        if kind is None or kind.custom:
            return None
        if self._virtual.knows(kind) and call.name is None:
            self._check_scope(kind, call)
            return Answer(201, codec.encode(self._virtual.answer(kind, call, request, _read_object(kind, request))))
        if (kind.bucket, call.subresource) == ("serviceaccounts", "token"):
            self._check_scope(kind, call)
            body = _decode_body(request, "TokenRequest") if request.body else {}
            return Answer(201, codec.encode(self._virtual.request_token(kind, call, body)))
        return None

    def _answer_path(self, request: Request) -> Answer:
        answer = self._discovery.answer(request, self._address) or self._openapi.answer(request)
        if answer is None and request.path == ("version",):
            answer = Answer(200, codec.encode(VERSION))
        elif answer is None and request.path and request.path[0] in _HEALTH:
            answer = Answer(200, b"ok", "text/plain")
        elif answer is None and not request.path:
            answer = Answer(200, codec.encode({"paths": self._paths()}))
        if answer is None:
            raise statuses.unknown_path()
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        return answer

    def _paths(self) -> list[str]:
        paths = ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        for group in self._registry.groups():
            versions = self._registry.versions(group)
            paths += [f"/apis/{group}/{version}" if group else f"/api/{version}" for version in versions]
            paths += [f"/apis/{group}"] if group else []
        return sorted(paths)

    @staticmethod
    def _check_scope(kind: Kind, call: Call) -> None:
        """Objects of namespaced kinds are only in namespaces; those of cluster-wide kinds are never there."""
        if kind.namespaced:
            if call.namespace is None and (call.name is not None or call.verb == "create"):
                raise statuses.method_not_allowed() if call.name is None else statuses.unknown_path()
        elif call.namespace is not None:
            raise statuses.unknown_path()

    @staticmethod
    def _check_subresource(kind: Kind, call: Call) -> None:
        if call.subresource not in kind.subresources:
            name = call.subresource.partition("/")[0]
            if (kind.bucket, call.subresource) == ("serviceaccounts", "token"):
                raise statuses.method_not_allowed()  # nothing but the creation, which is done already
            if not kind.custom and name in _UNSUPPORTED_SUBRESOURCES.get(kind.plural, ()):
                raise statuses.not_implemented(f"the subresource {kind.plural}/{name}")
            if name == "scale" and not kind.custom and kind.plural in _SCALABLE:
                raise statuses.not_implemented(f"the subresource {kind.plural}/scale")
            raise statuses.unknown_path()
        if call.verb not in ("get", "update", "patch"):
            raise statuses.method_not_allowed()

    def _create(self, kind: Kind, call: Call, request: Request) -> Answer:
        if call.name is not None:
            raise statuses.method_not_allowed()
        if kind.bucket in self._registry.terminating:
            raise statuses.method_not_allowed("create not allowed while custom resource definition is terminating")
        options = _write_options(request)
        body = _read_object(kind, request)
        record = self._writer.create(kind, call.namespace or "", body, options)
        return self._written(201, kind, record, request, options)

    def _update(self, kind: Kind, call: Call, request: Request) -> Answer:
        if call.name is None:
            raise statuses.method_not_allowed()
        if call.subresource and request.content_type == protobuf.MEDIA_TYPE:
            raise statuses.not_implemented("the status in protobuf")
        options = _write_options(request)
        body = _read_object(kind, request)
        metadata = body.get("metadata")
        named = metadata.get("name") if isinstance(metadata, dict) else None
        if named != call.name:
            raise statuses.bad_request(f"the name of the object ({named or ''}) does not match "
                                       f"the name on the URL ({call.name})")
        record = self._writer.update(
            kind, (call.namespace or "", call.name), lambda old: body,
            subresource=call.subresource, need_version=not kind.unconditional_update, options=options)
        return self._written(200, kind, record, request, options)

    def _patch(self, kind: Kind, call: Call, request: Request) -> Answer:
        if call.name is None:
            raise statuses.method_not_allowed()
        options = _write_options(request)
        apply = {patches.MERGE: patches.merge_patch, patches.JSON: patches.json_patch}
        if not kind.custom:
            apply[patches.STRATEGIC] = patches.strategic_patch
        if request.content_type == patches.APPLY:
            return self._apply(kind, call, request, options)
        if request.content_type not in apply:
            raise statuses.unsupported_media([*apply, patches.APPLY])
        patch = _decode_patch(request.body)
        if request.content_type != patches.JSON and not isinstance(patch, dict):
            raise statuses.bad_request("error decoding patch: json: cannot unmarshal the body into a JSON object")
        function = apply[request.content_type]
        record = self._writer.update(
            kind, (call.namespace or "", call.name), lambda old: function(old, patch),
            subresource=call.subresource, options=options)
        return self._written(200, kind, record, request, options)

    def _apply(self, kind: Kind, call: Call, request: Request, options: WriteOptions) -> Answer:
        key = (call.namespace or "", call.name or "")
        # The type is only there to tell it from other patches; otherwise, it is as good as any YAML.
        applied = _read_object(kind, msgspec.structs.replace(request, content_type=_YAML_TYPES[0]))
        metadata = applied.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise statuses.bad_request(f"metadata of {kind.kind} must be an object")
        applied["metadata"] = metadata = {"name": key[1], **(metadata or {})}
        if metadata["name"] != key[1]:
            raise statuses.bad_request(f"the name of the object ({metadata['name']}) does not match "
                                       f"the name on the URL ({key[1]})")
        if kind.namespaced and metadata.setdefault("namespace", key[0]) != key[0]:
            raise statuses.bad_request("the namespace of the provided object does not match "
                                       "the namespace sent on the request")
        if not self._writer.has(kind, key):
            self._access.authorize_creation(call, request)
        record, created = self._writer.apply(kind, key, applied, force=request.flag("force"),
                                             subresource=call.subresource, options=options)
        return self._written(201 if created else 200, kind, record, request, options)

    def _delete(self, kind: Kind, call: Call, request: Request) -> Answer:
        record, gone = self._writer.delete(kind, (call.namespace or "", call.name or ""), _delete_options(request))
        if not gone:
            return Answer(200, objects.encode_record(kind, record))
        details = {"name": record.key[1], "group": kind.group, "kind": kind.plural, "uid": record.uid}
        return Answer(200, codec.encode({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }))

    def _delete_collection(self, kind: Kind, call: Call, request: Request) -> Answer:
        options = _delete_options(request)
        selection = self._reader.select(kind, call, request)
        selected = self._reader.selected(kind, selection)
        for record in selected:  # all must be admitted before any goes
            self._writer.review_deletion(kind, record, options)
        records = [self._writer.delete(kind, record.key, options)[0] for record in selected]
        form = negotiate(request.accept)
        return Answer(200, form.many(kind, records, {"resourceVersion": str(self._reader.revision)}),
                      form.content_type)

    def _written(self, status: int, kind: Kind, record: Record, request: Request, options: WriteOptions) -> Answer:
        form = negotiate(request.accept)
        warnings = [f"299 - {json.dumps(text)}" for text in options.warnings or ()]
        headers = {"Warning": ", ".join(warnings)} if warnings else {}
        return Answer(status, form.one(kind, record), form.content_type, headers)


def _write_options(request: Request) -> WriteOptions:
    validation = request.query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise statuses.bad_request(f'invalid value for the parameter fieldValidation: "{validation}"')
    return WriteOptions(
        dry_run=_is_dry_run(request.query.get("dryRun")),
        strict=validation == "Strict",
        warnings=[] if validation == "Warn" else None,
        manager=_read_manager(request),
        agent=request.agent,
    )


def _read_manager(request: Request) -> str:
    name = request.query.get("fieldManager", "")
    applying = request.content_type == patches.APPLY
    if name or applying:
        errors = list(owners.validate_name(name, applying=applying))
        if errors:
            raise statuses.invalid(_Options({"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(
                request.method, "PatchOptions")), "", errors)
    return name


class _Options(msgspec.Struct, frozen=True):
    """How the options of a request are named in refusals."""

    kind: str
    group: str = "meta.k8s.io"
    plural: str = ""


def _is_dry_run(value: str | None) -> bool:
    if value not in (None, "", "All"):
        raise statuses.bad_request(f'invalid value for the parameter dryRun: "{value}"')
    return value == "All"


def _delete_options(request: Request) -> DeleteOptions:
    """Read the options from the body and the query; the query is for what the body does not say."""
    raw = {**request.query, **(_decode_body(request, "DeleteOptions") if request.body else {})}
    if isinstance(raw.get("dryRun"), str):
        raw["dryRun"] = ["All"] if _is_dry_run(raw["dryRun"]) else []
    try:
        options = msgspec.convert(raw, DeleteOptions, strict=False)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(f"DeleteOptions cannot be decoded: {error}") from None
    if options.propagationPolicy not in (None, "Foreground", "Background", "Orphan"):
        raise statuses.bad_request(f'invalid propagationPolicy: "{options.propagationPolicy}"')
    return options


def _read_object(kind: Kind, request: Request) -> Obj:
    """Decode the object of a creation or an update, and check that it is of the right kind."""
    body = _decode_body(request, kind.kind)
    if not kind.custom:  # the types of built-in kinds are known by the URL, so clients may leave them out
        body["apiVersion"] = body.get("apiVersion") or kind.api_version
        body["kind"] = body.get("kind") or kind.kind
    if not body.get("kind"):
        excerpt = request.body.decode(errors="replace")[:200]
        raise _unrecognized(kind.kind, f"Object 'Kind' is missing in '{excerpt}'")
    if not body.get("apiVersion"):
        raise _unrecognized(kind.kind, "couldn't get version/kind; 'apiVersion' is missing")
    if body["apiVersion"] != kind.api_version:
        raise statuses.bad_request(f"the API version in the data ({body['apiVersion']}) does not match "
                                   f"the expected API version ({kind.api_version})")
    if body["kind"] != kind.kind:
        raise statuses.bad_request(f'{body["kind"]} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                                   "the kind in the data does not match the expected kind")
    return body


def _unrecognized(what: str, why: str) -> statuses.APIStatus:
    return statuses.bad_request(f"the object provided is unrecognized (must be of type {what}): {why}")


def _decode_body(request: Request, what: str) -> dict[str, Any]:
    try:
        if request.content_type in _JSON_TYPES:
            body = codec.decode(request.body)
        elif request.content_type == protobuf.MEDIA_TYPE:
            body = protobuf.decode_object(request.body)
        elif request.content_type in _YAML_TYPES:
            body = codec.decode(codec.encode(yaml.safe_load(request.body)))
        else:
            raise statuses.unsupported_media(_BODY_TYPES)
    except protobuf.ProtobufError as error:
        raise _unrecognized(what, str(error)) from None
    except (codec.DecodeError, yaml.YAMLError, TypeError, RecursionError) as error:
        excerpt = request.body[:30].hex() + (" ..." if len(request.body) > 30 else "")
        raise _unrecognized(what, f"couldn't get version/kind; json parse error: {error} ({excerpt})") from None
    if not isinstance(body, dict):
        raise _unrecognized(what, "couldn't get version/kind; json parse error: not a JSON object")
    return body


def _decode_patch(body: bytes) -> Any:
    try:
        return codec.decode(body)
    except (codec.DecodeError, RecursionError) as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from None
