"""
The Kubernetes API: from a request to its answer or stream, with every refusal raised as a status.

Everything is synchronous; only streams go on afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from kopf_cluster import codec, encodings, patches, statuses
from kopf_cluster.access.gate import Access
from kopf_cluster.access.virtual import VirtualResources
from kopf_cluster.api import subresources
from kopf_cluster.api.bodies import YAML_TYPES, decode_body, decode_patch, delete_options, read_object, write_options
from kopf_cluster.api.discovery import Discovery, answer_issuer, answer_path
from kopf_cluster.api.openapi import OpenAPI
from kopf_cluster.api.subresources import Pods
from kopf_cluster.kinds import objects, structures
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.reads.reading import Reader
from kopf_cluster.reads.representations import negotiate
from kopf_cluster.requests import Answer, Call, Request, Stream, with_warnings
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Record
from kopf_cluster.writes import new_states
from kopf_cluster.writes.strategic import strategic_patch
from kopf_cluster.writes.write_options import WriteOptions
from kopf_cluster.writes.writing import Writer

Page: TypeAlias = Callable[[Request], Answer | None]


class API:
    """All that is served under the Kubernetes paths."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        writer: Writer,
        access: Access,
        *,
        bookmark_interval: float,
        sharded: bool,
    ) -> None:
        self._registry = registry
        self._writer = writer
        self._access = access
        self._virtual = VirtualResources(store, access)
        self._pods = Pods(store, registry, writer)
        self._reader = Reader(store, bookmark_interval, sharded=sharded)
        self.address = ""
        """The host and the port of the server, as soon as they are known."""
        discovery = Discovery(registry)
        self.pages: list[Page] = [
            lambda request: discovery.answer(request, self.address),
            OpenAPI(registry).answer,
            functools.partial(answer_path, registry=registry),
            lambda request: answer_issuer(request, self.address, access.tokens),
        ]
        """Functions that answer requests outside of resources; the first one with an answer decides."""

    def answer(self, call: Call, request: Request) -> Answer | Stream:
        """Answer the request, or raise the refusal."""
        if call.verb != "watch" and "timeout" in request.query:
            request.read_timeout()  # a wrong one is refused before anything else
        self._access.authorize(call, request)
        if not call.plural:
            return self._answer_path(request)
        kind = self._registry.find(call.group, call.version, call.plural)
        if kind is None:
            return self._refuse_path(request)
        return self._answer_kind(kind, call, request) if not kind.warnings else self._warn(kind, call, request)

    def _warn(self, kind: Kind, call: Call, request: Request) -> Answer | Stream:
        """Answer with the warnings of the kind, even if it is a refusal."""
        try:
            answer = self._answer_kind(kind, call, request)
        except statuses.APIStatus as status:
            status.headers = with_warnings(status.headers, kind.warnings)
            raise
        if isinstance(answer, Answer):
            return msgspec.structs.replace(answer, headers=with_warnings(answer.headers, kind.warnings))
        return answer

    def _answer_kind(self, kind: Kind, call: Call, request: Request) -> Answer | Stream:
        """Answer in an encoding that the client accepts; refuse the request first if there is none."""
        media = negotiate(kind, request).media
        answer = self._act(kind, call, request)
        return encodings.transcode(answer, media) if isinstance(answer, Answer) else answer

    def _act(self, kind: Kind, call: Call, request: Request) -> Answer | Stream:
        self._check_scope(kind, call)
        if call.subresource:
            if (answer := self._answer_below(kind, call, request)) is not None:
                return answer
        elif call.verb not in kind.verbs:
            raise statuses.method_not_allowed()
        elif not kind.is_stored:
            return self._answer_virtually(kind, call, request)
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

    def _answer_below(self, kind: Kind, call: Call, request: Request) -> Answer | None:
        """Answer for a subresource, or return none if it is a part of the object."""
        name, _, rest = call.subresource.partition("/")
        subresource = kind.listed_subresources.get(name)
        if subresource is None or (rest and name != "proxy"):
            raise statuses.unknown_path()
        if call.verb not in subresource.verbs:
            raise statuses.method_not_allowed()
        key = (call.namespace or "", call.name or "")
        if not kind.custom and name in subresources.OF_KUBELETS:
            if name in subresources.CONNECTIONS:
                self._writer.review_connection(kind, key, name, subresources.read_options(subresource, rest, request))
            raise statuses.not_implemented(f"the subresource {kind.plural}/{name}")
        match name:
            case "scale" if kind.scale is not None:
                return subresources.answer_scale(self._writer, kind, kind.scale, call, request)
            case "token":
                body = decode_body(request, subresource) if request.body else {}
                return Answer(201, codec.encode(self._virtual.request_token(kind, call, body)))
            case "binding" | "eviction":
                body = read_object(subresource, request, implied=True)
                named = (body.get("metadata") or {}).get("name") if isinstance(body.get("metadata"), dict) else None
                if named not in (None, "", key[1]):
                    raise statuses.bad_request(f"name in URL does not match name in {subresource.kind} object")
                act = self._pods.bind if name == "binding" else self._pods.evict
                return act(kind, key, body, write_options(request))
        return None

    def _answer_virtually(self, kind: Kind, call: Call, request: Request) -> Answer:
        """Answer for a resource that is never stored."""
        if self._virtual.knows(kind):
            return Answer(201, codec.encode(self._virtual.answer(kind, call, request, _read(kind, request))))
        pods = self._registry.find("", "v1", "pods")
        if kind.bucket != "bindings" or pods is None:
            raise statuses.not_implemented(f"the resource {statuses.group_resource(kind)}")
        body = _read(kind, request)
        name = (body.get("metadata") or {}).get("name") if isinstance(body.get("metadata"), dict) else None
        return self._pods.bind(pods, (call.namespace or "", name or ""), body, write_options(request))

    def _answer_path(self, request: Request) -> Answer:
        answer = next((found for page in self.pages if (found := page(request)) is not None), None)
        if answer is None:
            return self._refuse_path(request)
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        return answer

    def _refuse_path(self, request: Request) -> Answer:
        """Refuse an unknown path: in plain text, if the group has no built-in kinds."""
        if request.path[:1] == ("apis",) and self._registry.is_custom(request.path[1]):
            return Answer(
                404, b"404 page not found\n", "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"}
            )
        raise statuses.unknown_path()

    @staticmethod
    def _check_scope(kind: Kind, call: Call) -> None:
        """Refuse namespaced kinds outside of namespaces, and cluster-wide kinds inside."""
        if kind.namespaced:
            if call.namespace is None and (call.name is not None or call.verb in ("create", "deletecollection")):
                is_path = call.name is None and not kind.custom
                raise statuses.method_not_allowed() if is_path else statuses.unknown_path()
        elif call.namespace is not None:
            raise statuses.unknown_path()

    def _create(self, kind: Kind, call: Call, request: Request) -> Answer:
        if call.name is not None:
            raise statuses.method_not_allowed()
        if kind.bucket in self._registry.terminating:
            raise statuses.method_not_allowed("create not allowed while custom resource definition is terminating")
        options = write_options(request)
        body = _read(kind, request)
        record = self._writer.create(kind, call.namespace or "", body, options)
        return self._written(201, kind, record, request, options)

    def _update(self, kind: Kind, call: Call, request: Request) -> Answer:
        if call.name is None:
            raise statuses.method_not_allowed()
        options = write_options(request)
        body = _read(kind, request)
        objects.require_same_name(body, call.name)
        key = (call.namespace or "", call.name)
        if kind.created_by_update and not call.subresource and not self._writer.has(kind, key):
            self._access.authorize_creation(call, request)
            record = self._writer.create(kind, key[0], new_states.begin_by_update(kind, body), options)
            return self._written(201, kind, record, request, options)
        record = self._writer.update(
            kind,
            key,
            lambda old: body,
            subresource=call.subresource,
            need_version=not kind.unconditional_update,
            options=options,
        )
        return self._written(200, kind, record, request, options)

    def _patch(self, kind: Kind, call: Call, request: Request) -> Answer:
        if call.name is None:
            raise statuses.method_not_allowed()
        options = write_options(request)
        apply: dict[str, Callable[[Obj, Any], Any]] = {
            patches.JSON: patches.json_patch,
            patches.MERGE: patches.merge_patch,
        }
        if not kind.custom:
            structure = structures.of_definition(kind.definition)
            apply[patches.STRATEGIC] = lambda old, patch: strategic_patch(old, patch, structure)
        if request.content_type == patches.APPLY:
            return self._apply(kind, call, request, options)
        if request.content_type not in apply:
            raise statuses.unsupported_media([*apply, patches.APPLY])
        patch = decode_patch(request)
        function = apply[request.content_type]
        record = self._writer.update(
            kind,
            (call.namespace or "", call.name),
            lambda old: function(old, patch),
            subresource=call.subresource,
            need_version=not kind.unconditional_update,
            options=options,
        )
        return self._written(200, kind, record, request, options)

    def _apply(self, kind: Kind, call: Call, request: Request, options: WriteOptions) -> Answer:
        key = (call.namespace or "", call.name or "")
        # The content type only distinguishes it from other patches; the body is YAML.
        applied = _read(kind, msgspec.structs.replace(request, content_type=YAML_TYPES[0]))
        metadata = applied.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise statuses.bad_request(f"metadata of {kind.kind} must be an object")
        applied["metadata"] = metadata = {"name": key[1], **(metadata or {})}
        if metadata["name"] != key[1]:
            raise statuses.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({key[1]})"
            )
        if kind.namespaced and metadata.setdefault("namespace", key[0]) != key[0]:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if not self._writer.has(kind, key):
            self._access.authorize_creation(call, request)
        record, created = self._writer.apply(
            kind, key, applied, force=request.flag("force"), subresource=call.subresource, options=options
        )
        return self._written(201 if created else 200, kind, record, request, options)

    def _delete(self, kind: Kind, call: Call, request: Request) -> Answer:
        options = delete_options(request)
        record, gone = self._writer.delete(kind, (call.namespace or "", call.name or ""), options)
        if not gone or kind.shows_deleted:
            # Only clients with the old option of cascading learn that the deletion goes on, for compatibility.
            status = 202 if not gone and options.orphanDependents is False else 200
            return Answer(status, negotiate(kind, request).form.one(kind, record))
        details = {"name": record.key[1], "group": kind.group, "kind": kind.plural, "uid": record.uid}
        return Answer(
            200,
            codec.encode(
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": {key: value for key, value in details.items() if value},
                }
            ),
        )

    def _delete_collection(self, kind: Kind, call: Call, request: Request) -> Answer:
        options = delete_options(request)
        selection = self._reader.select(kind, call, request)
        selected = self._reader.selected(kind, selection)
        for record in selected:  # all must be admitted before any goes
            self._writer.review_deletion(kind, record, options)
        records = [self._writer.delete(kind, record.key, options)[0] for record in selected]
        form = negotiate(kind, request).form
        return Answer(200, form.many(kind, records, {"resourceVersion": str(self._reader.revision)}))

    def _written(self, status: int, kind: Kind, record: Record, request: Request, options: WriteOptions) -> Answer:
        headers = with_warnings({}, options.warnings or (), options.remarks or ())
        return Answer(status, negotiate(kind, request).form.one(kind, record), headers=headers, name=record.key[1])


def _read(kind: Kind, request: Request) -> Obj:
    """Decode an object; clients may omit the types of built-in kinds, which follow from the URL."""
    return read_object(kind, request, implied=not kind.custom)
