"""
The dry client: it reads from the cluster, but all writes go to drafts, which are thrown away.

The server makes the first write to an object as a dry run, so the result is exact: with defaults, server-side apply,
admission, permissions. Later writes are merged here, because the server has forgotten the first one. The streams bring
only the drafts: the cluster stays as it was listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple, Unpack

from kopf._client.errors import APIForbiddenError, APINotFoundError, make_error
from kopf._client.http.api import JSON, APIClient, Payload, RequestOptions
from kopf._values import codec
from kopf._values.fields import parse_pointer
from kopf._values.patches import JSON_PATCH, MERGE_PATCH, merge
from kopf._values.records import Record

Obj = dict[str, Any]

_REVIEWS = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")
"""The paths of reviews, which the server answers, but does not store."""


class Place(NamedTuple):
    """The object or the listing that the path of a URL addresses."""

    group: str
    plural: str
    namespace: str | None
    name: str

    @property
    def resource(self) -> str:
        """The full name of the resource, e.g. ``deployments.apps``."""
        return f"{self.plural}.{self.group}".rstrip(".")


class Draft(Record):
    """A planned object."""

    before: Obj | None
    """Its state in the cluster; ``None`` if it does not exist."""
    after: Obj | None
    """Its planned state; ``None`` if it would be deleted."""


class DryClient(APIClient):
    """The client of an operator that writes nothing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.drafts: dict[Place, Draft] = {}
        """All objects that would change, in the order of their first writes."""
        self.events: list[Obj] = []
        """The Kubernetes events that would be posted."""
        self.busy = 0
        """The number of requests under way."""
        self.denied: dict[Place, str] = {}
        """The places of denied requests, and the errors."""
        self.is_connected = False
        """Whether the client has read anything from the cluster."""
        self._streams: dict[asyncio.Queue[bytes], str] = {}

    async def request(
        self,
        method: str,
        path: str,
        payload: Payload | None = None,
        content_type: str = JSON,
        **options: Unpack[RequestOptions],
    ) -> bytes:
        self.busy += 1
        try:
            if path.startswith(_REVIEWS):
                return await super().request(method, path, payload, content_type, **options)
            if method == "GET":
                draft = self.drafts.get(parse_path(path))
                content = await super().request(method, path, **options) if draft is None else _answer(draft, path)
                self.is_connected = True
                return content
            decoded: Any = codec.decode(payload) if isinstance(payload, bytes) else payload
            if parse_path(path).plural == "events":
                self.events += [decoded] if method == "POST" else []
                return codec.encode({**decoded, "metadata": {"name": "event"}})
            return await self._write(method, path, decoded, content_type, options)
        except APIForbiddenError as e:
            self.denied[parse_path(path)] = str(e)
            raise
        finally:
            self.busy -= 1

    async def _write(self, method: str, path: str, payload: Any, content_type: str, options: RequestOptions) -> bytes:
        place = parse_path(path)
        draft = self.drafts.get(place)
        if draft is None:
            before = None if method == "POST" else await self._read(path, place)
            raw = await self._try(method, path, payload, content_type, options)
            place = place if place.name else place._replace(name=codec.decode(raw)["metadata"]["name"])
            draft = self.drafts[place] = Draft(before, before)
            after = None if method == "DELETE" else _renew(codec.decode(raw))
        elif method == "DELETE" or content_type in (MERGE_PATCH, JSON_PATCH):
            obj = codec.decode(_answer(draft, path))
            after = None if method == "DELETE" else _renew(_patch(obj, payload, path))
        else:
            if draft.before is None:  # the dry run has given it a UID that nobody else knows
                payload = {**payload, "metadata": {**payload.get("metadata", {}), "uid": None}}
            after = _renew(codec.decode(await self._try(method, path, payload, content_type, options)))
        self._publish(place, draft.after, after)
        draft.after = after
        return b"{}" if after is None else _answer(draft, path)

    def _publish(self, place: Place, before: Obj | None, after: Obj | None) -> None:
        """Report the operator's own writes to its streams, as a server does."""
        type_ = "DELETED" if after is None else "ADDED" if before is None else "MODIFIED"
        obj = before if after is None else after
        for queue, path in self._streams.items():
            target = parse_path(path)
            if obj is not None and target == place._replace(name="", namespace=target.namespace and place.namespace):
                queue.put_nowait(codec.encode({"type": type_, "object": obj}))

    async def _read(self, path: str, place: Place) -> Obj | None:
        end = path.rindex(f"/{place.name}") + len(place.name) + 1  # without the subresource
        try:
            obj: Obj = codec.decode(await super().request("GET", path[:end]))
        except APINotFoundError:
            return None
        return obj

    async def _try(self, method: str, path: str, payload: Any, content_type: str, options: RequestOptions) -> bytes:
        dry: RequestOptions = {**options, "params": {**(options.get("params") or {}), "dryRun": "All"}}
        if method == "DELETE" and payload:  # with a body, the server ignores the options in the query
            payload = {**payload, "dryRun": ["All"]}
        return await super().request(method, path, payload, content_type, **dry)

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        if params is not None and "sendInitialEvents" in params:
            raise make_error(status=400, method="GET", path=path, body=b"")  # then the operator lists by pages
        queue = asyncio.Queue[bytes]()
        self._streams[queue] = path
        try:
            yield []
            while True:
                yield [await queue.get()]
        finally:
            del self._streams[queue]


def parse_path(path: str) -> Place:
    """Parse the path; a listing has no name."""
    _, root, *rest = path.split("/")
    group, rest = ("", rest[1:]) if root == "api" else (rest[0] if rest else "", rest[2:])
    is_inside = len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize")
    namespace, rest = (rest[1], rest[2:]) if is_inside else (None, rest)
    plural, name, *_ = [*rest, "", ""]
    return Place(group, plural, namespace, name)


def _answer(draft: Draft, path: str) -> bytes:
    if draft.after is None:
        raise make_error(status=404, method="GET", path=path, body=b"")
    return codec.encode(draft.after)


def _renew(obj: Obj) -> Obj:
    """Give the changed object a new version: dry runs make none."""
    version = obj["metadata"].get("resourceVersion") or "0"
    obj["metadata"]["resourceVersion"] = str(int(version) + 1) if version.isdecimal() else f"{version}1"
    return obj


def _patch(obj: Obj, payload: Any, path: str) -> Obj:
    """Apply a merge patch, or a JSON patch as this framework makes them: with no lists on the paths."""
    if isinstance(payload, list):
        for item in payload:
            *parents, key = parse_pointer(item["path"])
            target = obj
            for parent in parents:
                target = target.setdefault(parent, {})
            if item["op"] == "test" and target.get(key) != item["value"]:
                raise make_error(status=422, method="PATCH", path=path, body=b"")
            if item["op"] == "remove":
                target.pop(key, None)
            else:
                target[key] = item["value"]
    else:
        versions = obj["metadata"].get("resourceVersion"), payload.get("metadata", {}).get("resourceVersion")
        if versions[1] not in (None, versions[0]):
            raise make_error(status=409, method="PATCH", path=path, body=b"")
        merge(obj, payload)
    return obj
