"""
Another user of the cluster: creates, changes and deletes objects, and watches what becomes of them.

It talks to the same API as the operator does, but by its own connections, in memory. The objects of every kind are
watched from the beginning of the test on, so that each state that an object was ever in, can be looked at afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import aiohttp

from kopf._client.http.aiohttp_session import Closings
from kopf_cluster import LocalCluster
from tests.fastforward import is_fast
from tests.patience import PATIENCE

Obj = dict[str, Any]

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
PREFIX = "kopf.zalando.org"
LAST_HANDLED = f"{PREFIX}/last-handled-configuration"

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def get_patience() -> float:
    """How long to wait for a condition, in seconds of the loop's time: a lot of it passes on fast-forwarded loops."""
    return 6 * 3600.0 if is_fast() else PATIENCE


class Refused(Exception):
    """The API has refused the request."""

    def __init__(self, status: int, content: Any) -> None:
        super().__init__(f"HTTP {status}: {content}")
        self.status = status


class Expired(Exception):
    """The version is too old to be watched from."""


class API:
    """A plain client of the API."""

    def __init__(self, cluster: LocalCluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.session = session

    async def request(self, method: str, path: str, payload: Any = None, content_type: str = "application/json") -> Any:
        data = None if payload is None else json.dumps(payload)
        headers = {"Content-Type": content_type}
        async with self.session.request(method, self.cluster.url + path, data=data, headers=headers) as response:
            content = await response.json()
            if response.status >= 400:
                raise Refused(response.status, content)
            return content

    async def list_events(self, namespace: str = "default") -> list[Obj]:
        """The Kubernetes events that were posted."""
        listing = await self.request("GET", f"/api/v1/namespaces/{namespace}/events")
        return list(listing["items"])


@contextlib.asynccontextmanager
async def connect(cluster: LocalCluster) -> AsyncIterator[API]:
    """Connect to the cluster."""
    headers = {"Authorization": f"Bearer {cluster.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    closings = Closings()
    async with aiohttp.ClientSession(
        headers=headers,
        connector=cluster.open_network().make_connector(),
        timeout=timeout,
        response_class=closings.make_response_class(),
    ) as session:
        yield API(cluster, session)
    await closings.wait()  # sessions do not wait for the connections of interrupted streams


class Objects:
    """The objects of one kind in one namespace."""

    def __init__(self, api: API, kind: str, plural: str, *, group: str = "kopf.dev") -> None:
        self.api = api
        self.kind = kind
        self.plural = plural
        self._group = group
        self._path = f"/apis/{group}/v1/namespaces/default/{plural}"
        self._history: list[tuple[str, Obj]] = []
        self._histories: dict[str, list[tuple[str, Obj]]] = {}
        self._news = asyncio.Event()

    async def create(
        self,
        name: str = "obj",
        *,
        spec: Mapping[str, Any] | None = None,
        status: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> Obj:
        """Create an object; all kwargs but the spec & status go to its metadata."""
        obj: Obj = {**self._get_head(), "metadata": {"name": name, **metadata}}
        obj |= {"spec": {"field": "value"} if spec is None else dict(spec)}
        obj |= {} if status is None else {"status": dict(status)}
        return await self.api.request("POST", self._path, obj)  # type: ignore[no-any-return]

    async def create_all(self, names: Iterable[str], **fields: Any) -> list[str]:
        """Create objects with these names, one by one, with the same content; get the names."""
        return [(await self.create(name, **fields))["metadata"]["name"] for name in names]

    async def create_and_wait(self, name: str = "obj", **fields: Any) -> Obj:
        """Create an object, and wait until it is handled; get it as it is then."""
        await self.create(name, **fields)
        return await self.wait_handled(name)

    async def get(self, name: str = "obj") -> Obj:
        """Read the object."""
        return await self.api.request("GET", f"{self._path}/{name}")  # type: ignore[no-any-return]

    async def merge(self, patch: Mapping[str, Any], name: str = "obj", *, subresource: str = "") -> Obj:
        """Change the object with a merge-patch."""
        path = f"{self._path}/{name}" + (f"/{subresource}" if subresource else "")
        return await self.api.request("PATCH", path, patch, MERGE_PATCH)  # type: ignore[no-any-return]

    async def edit(self, *operations: Mapping[str, Any], name: str = "obj") -> Obj:
        """Change the object with a JSON-patch."""
        path = f"{self._path}/{name}"
        return await self.api.request("PATCH", path, operations, JSON_PATCH)  # type: ignore[no-any-return]

    async def change_and_wait(self, name: str = "obj", **spec: Any) -> Obj:
        """Change the spec, and wait until that is handled; get the object as it is then."""
        await self.merge({"spec": spec}, name)
        return await self.wait_handled(name, **spec)

    async def delete(self, name: str = "obj") -> None:
        """Request the deletion; the object remains while there are finalizers."""
        await self.api.request("DELETE", f"{self._path}/{name}")

    async def delete_and_wait(self, name: str = "obj") -> Obj:
        """Request the deletion, and wait until the object disappears; get its last state."""
        await self.delete(name)
        return await self.wait_gone(name)

    async def delete_all(self, names: Iterable[str]) -> None:
        """Request the deletion of all of them, one by one."""
        for name in names:
            await self.delete(name)

    async def release(self, name: str = "obj") -> None:
        """Remove all finalizers, whosever they are."""
        await self.merge({"metadata": {"finalizers": None}}, name)

    async def release_and_wait(self, name: str = "obj") -> Obj:
        """Remove all finalizers, and wait until the object disappears; get its last state."""
        await self.release(name)
        return await self.wait_gone(name)

    def get_events(self, name: str = "obj") -> list[tuple[str, Obj]]:
        """All events that were seen of the object, with their types; in the order of the stream."""
        return [*self._histories.get(name, ())]

    @property
    def history(self) -> list[tuple[str, Obj]]:
        """All events that were seen of all objects, with their types; in the order of the stream."""
        return self._history

    def get_history(self, name: str = "obj") -> list[Obj]:
        """All states of the object that were ever seen, the last one before its disappearance included."""
        return [obj for _, obj in self.get_events(name)]

    async def wait(self, condition: Callable[[Obj], object], name: str = "obj", *, uid: str | None = None) -> Obj:
        """Wait until the object (this very one, if the uid is known) exists so that the condition is true for it."""

        def check() -> Obj | None:
            type_, obj = (self.get_events(name) or [("DELETED", {})])[-1]
            is_there = type_ != "DELETED" and uid in (None, obj["metadata"]["uid"])
            return obj if is_there and condition(obj) else None

        return await self._wait(check, name)

    async def wait_all(self, condition: Callable[[Obj], object], names: Iterable[str]) -> None:
        """Wait until the condition is true for all of them."""
        for name in names:
            await self.wait(condition, name)

    async def wait_seen(self, condition: Callable[[Obj], object], name: str = "obj") -> Obj:
        """Wait until the object has ever been seen so, even if it is different already; get the first such state."""
        return await self._wait(lambda: next(filter(condition, self.get_history(name)), None), name)

    async def wait_handled(self, name: str = "obj", **spec: Any) -> Obj:
        """Wait until the handling of the object is over, i.e. the last handled state is the current one."""

        def check(obj: Obj) -> bool:
            is_current = all(obj.get("spec", {}).get(key) == value for key, value in spec.items())
            return is_current and is_handled(obj)

        return await self.wait(check, name)

    async def wait_all_handled(self, names: Iterable[str]) -> None:
        for name in names:
            await self.wait_handled(name)

    async def wait_gone(self, name: str = "obj", *, uid: str | None = None) -> Obj:
        """Wait until the object disappears; get its last state."""

        def check() -> Obj | None:
            for type_, obj in reversed(self.get_events(name)):
                if type_ == "DELETED" and uid in (None, obj["metadata"]["uid"]):
                    return obj
            return None

        return await self._wait(check, name)

    async def wait_all_gone(self, names: Iterable[str]) -> None:
        """Wait until all of them disappear."""
        for name in names:
            await self.wait_gone(name)

    async def _wait(self, check: Callable[[], Obj | None], name: str) -> Obj:
        try:
            async with asyncio.timeout(get_patience()):
                while (obj := check()) is None:
                    self._news.clear()
                    await self._news.wait()
                return obj
        except TimeoutError:
            history = "\n".join(f"{type_} {json.dumps(obj)}" for type_, obj in self.get_events(name)[-5:])
            raise AssertionError(f"It never came so with {name!r}; the last that was seen:\n{history}") from None

    async def record(self, started: asyncio.Event) -> None:
        """Remember everything that happens to the objects, until cancelled; whatever happens to the API meanwhile."""
        version = (await self.api.request("GET", self._path))["metadata"]["resourceVersion"]
        pause = 0.01
        while True:
            try:
                async for event in self._stream(version, started):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._remember(event["type"], event["object"])
                    pause = 0.01
            except Expired:
                version = await self._catch_up()
            except (aiohttp.ClientError, Refused):
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1)  # some tests refuse everything for minutes

    async def _stream(self, version: str, started: asyncio.Event) -> AsyncIterator[Obj]:
        url = f"{self.api.cluster.url}{self._path}?watch=1&resourceVersion={version}"
        async with self.api.session.get(url, read_bufsize=2**24) as response:
            if response.status >= 400:
                raise Refused(response.status, await response.json())
            started.set()
            while line := await response.content.readuntil(b"\n"):
                event: Obj = json.loads(line)
                if event["type"] == "ERROR":
                    raise Expired
                yield event

    async def _catch_up(self) -> str:
        """Take the current states: what was between them is lost."""
        listing = await self.api.request("GET", self._path)
        known = {obj["metadata"]["uid"]: (type_, obj) for type_, obj in self._history}
        there = {obj["metadata"]["uid"]: obj for obj in listing["items"]}
        for uid, (type_, obj) in known.items():
            if type_ != "DELETED" and uid not in there:
                self._remember("DELETED", obj)
        for uid, obj in there.items():
            if uid not in known or known[uid][1]["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._remember("MODIFIED" if uid in known else "ADDED", {**self._get_head(), **obj})
        return str(listing["metadata"]["resourceVersion"])

    def _get_head(self) -> Obj:
        return {"apiVersion": f"{self._group}/v1", "kind": self.kind}

    def _remember(self, type_: str, obj: Obj) -> None:
        self._history.append((type_, obj))
        self._histories.setdefault(obj["metadata"]["name"], []).append((type_, obj))
        self._news.set()


@contextlib.asynccontextmanager
async def watch(api: API, kind: str, plural: str, *, group: str = "kopf.dev") -> AsyncIterator[Objects]:
    """Give the objects of the kind, with their history being recorded."""
    objects, started = Objects(api, kind, plural, group=group), asyncio.Event()
    task = asyncio.create_task(objects.record(started), name=f"history of {plural}")
    waiter = asyncio.create_task(started.wait())
    try:
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
        yield objects
    finally:
        task.cancel()
        waiter.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)


def get_annotations(obj: Obj) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def get_finalizers(obj: Obj) -> list[str]:
    return list(obj["metadata"].get("finalizers") or [])


def get_essence(obj: Obj) -> Any:
    """The last handled configuration, if there is any."""
    text = get_annotations(obj).get(LAST_HANDLED)
    return None if text is None else json.loads(text)


def get_progress(obj: Obj) -> dict[str, Any]:
    """The persisted progress of all handlers, by their keys."""
    return {
        key.removeprefix(f"{PREFIX}/"): json.loads(value)
        for key, value in get_annotations(obj).items()
        if key.startswith(f"{PREFIX}/") and key != LAST_HANDLED
    }


def has_progress(*keys: str) -> Callable[[Obj], bool]:
    """The condition that the progress of all those handlers is there."""
    return lambda obj: get_progress(obj).keys() >= set(keys)


def is_handled(obj: Obj) -> bool:
    """Whether the handling is over: the last handled configuration is the current one, no progress is left."""
    essence = get_essence(obj)
    return essence is not None and essence.get("spec", {}) == obj.get("spec", {}) and not get_progress(obj)
