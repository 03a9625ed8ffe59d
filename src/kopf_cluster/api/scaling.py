"""
The subresource ``scale``: how many replicas there are, and how many there must be, whatever the kind is.

See "Subresources" of the API conventions, and "Scale subresource" of custom resource definitions.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kopf_cluster import codec, patches, statuses
from kopf_cluster.api.bodies import read_object
from kopf_cluster.api.patch_bodies import decode_patch
from kopf_cluster.api.request_options import write_options
from kopf_cluster.kinds import objects, scales
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.scales import ScaleKind, ScalePaths
from kopf_cluster.requests import Answer, Call, Request
from kopf_cluster.store.storage import Key, Record
from kopf_cluster.writes.write_options import WriteOptions
from kopf_cluster.writes.writing import Writer

# There are no lists in scales, so the strategic patches are the same as the merging ones.
_PATCHES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    patches.JSON: patches.json_patch, patches.MERGE: patches.merge_patch, patches.STRATEGIC: patches.merge_patch}


class Scaling:
    """Answers to reads and writes of scales."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def answer(self, kind: Kind, paths: ScalePaths, call: Call, request: Request) -> Answer:
        key = (call.namespace or "", call.name or "")
        if call.verb == "get":
            return _show(kind, paths, self._writer.need(kind, key))
        options = write_options(request)
        if call.verb == "update":
            scale = read_object(ScaleKind(), request, implied=not kind.custom)
            objects.require_same_name(scale, key[1])
            return self._write(kind, paths, key, lambda old: scale, options)
        if request.content_type == patches.APPLY:
            raise statuses.not_implemented(f"applying to the subresource {kind.plural}/scale on the server side")
        if request.content_type not in _PATCHES:
            raise statuses.unsupported_media(_PATCHES)
        function, patch = _PATCHES[request.content_type], decode_patch(request)
        return self._write(kind, paths, key, lambda old: function(old, patch), options)

    def _write(self, kind: Kind, paths: ScalePaths, key: Key, transform: Any, options: WriteOptions) -> Answer:
        def change(old: Obj) -> Obj:
            return scales.take(transform(scales.show(old, paths)), old, paths)
        return _show(kind, paths, self._writer.update(kind, key, change, subresource="scale", options=options))


def _show(kind: Kind, paths: ScalePaths, record: Record) -> Answer:
    return Answer(200, codec.encode(scales.show(objects.open_record(kind, record), paths)))
