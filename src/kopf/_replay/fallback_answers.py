"""
Fallback answers: the responses of a replay to requests that were never recorded.

The operator has diverged already, but must go on, so that the other objects can be compared. Objects are as they were
last seen. A change is answered as if it was made, and is forgotten.
"""

from __future__ import annotations

from typing import Any

from kopf._client.errors import make_error
from kopf._replay.documents import parse_path, read
from kopf._replay.format import RecordedEntry
from kopf._replay.recorded_run import RecordedRun
from kopf._values import codec
from kopf._values.patches import merge, thaw
from kopf._virtual_time.journal import ObjectPlace


class FallbackAnswers:
    """Makes responses from the objects that the operator has seen."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._objects: dict[ObjectPlace, dict[str, Any]] = {}
        self._responses: dict[str, list[bytes]] = {}
        self._created = 0
        if run.checkpoint is not None:
            for path, objects in run.checkpoint.objects.items():
                for obj in objects:
                    self._see(path, read(obj))
            for request in run.list_actions("req"):
                if request.time <= run.checkpoint.time and request.end is not None:
                    self.see_response(request.fields["target"], request.end)

    def see_response(self, target: str, response: RecordedEntry) -> None:
        """Remember a response to the operator."""
        if response.documents:
            self._responses[target] = response.documents
            self._see(target.partition("?")[0], read(response.documents[0]))

    def see_lines(self, path: str, lines: list[bytes]) -> None:
        """Remember the lines of a stream."""
        for line in lines:
            event = read(line)
            if isinstance(event, dict):
                self._see(path, event.get("object"))

    def _see(self, path: str, obj: Any) -> None:
        place = parse_path(path)
        if place is not None and isinstance(obj, dict) and isinstance(metadata := obj.get("metadata"), dict):
            namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
            if name:
                self._objects[ObjectPlace(place.resource, namespace, name)] = obj

    def answer(self, method: str, target: str, body: bytes | None) -> bytes:
        """Make a response. Raises :class:`APIError` if the object is not known."""
        path = target.partition("?")[0]
        place = parse_path(path)
        if method == "GET" and (listing := self._list(path)) is not None:
            return listing
        if method == "GET" and target in self._responses:
            return self._responses[target][0]
        content = read(body)
        known = self._objects.get(place) if place is not None else None
        if method == "POST" and isinstance(content, dict):
            self._created += 1
            return codec.encode(_complete(content, self._created))
        if known is None:
            status = {"kind": "Status", "reason": "NotFound", "code": 404, "message": "It was never recorded."}
            raise make_error(status=404, method=method, path=path, body=codec.encode(status))
        if method in ("PATCH", "PUT") and isinstance(content, dict):  # after a JSON-patch, the object stays as it is
            merge(changed := thaw(known), content)
            return codec.encode(changed)
        return codec.encode(known)

    def _list(self, path: str) -> bytes | None:
        """List the objects of the checkpoint; return ``None`` if the path was not listed before it."""
        checkpoint = self._run.checkpoint
        if checkpoint is None or path not in checkpoint.versions:
            return None
        items = [read(item) for item in checkpoint.objects.get(path, ())]
        kept = self._get_kept_listing(path)
        metadata = {"resourceVersion": checkpoint.versions[path]}
        return codec.encode({"apiVersion": "v1", "kind": "List", **kept, "metadata": metadata, "items": items})

    def _get_kept_listing(self, path: str) -> dict[str, Any]:
        for target, documents in self._responses.items():
            if target.partition("?")[0] == path:
                content = read(documents[0])
                return content if isinstance(content, dict) else {}
        return {}


def _complete(content: dict[str, Any], number: int) -> dict[str, Any]:
    """Complete the object as the server does at its creation."""
    metadata = content.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}unrecorded-{number}"
    return {**content, "metadata": {**metadata, "name": name, "uid": f"unrecorded-{number}", "resourceVersion": "0"}}
