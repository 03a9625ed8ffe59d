"""
The load: objects are created, changed and deleted at a steady pace, with a limited number of them not handled yet.

It is known that an object is handled from one watch-stream (or from what the handlers report), never by polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec

from kopf._client.auth.credentials import ConnectionInfo

API = "/apis/bench.example.com/v1"
PATH = f"{API}/namespaces/default/widgets"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"

_CATCHING_UP = 0.1
"""How far behind the schedule the load can be to catch up; otherwise, it goes on from where it is. In seconds."""


class Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] = {}


class Widget(msgspec.Struct):
    metadata: Metadata


class Event(msgspec.Struct):
    type: str
    object: Widget


def make_widget(
    name: str, phase: str, *, handled: bool = False, blocked: bool = False, tier: str = "backend"
) -> dict[str, Any]:
    """
    Make an object of a usual size: 1-2 KB.

    If it is to be handled already, it carries what both frameworks put there when they have handled it; and if it is
    to be blocked from deletion, their finalizer.
    """
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "benchmark", "tier": tier}
    annotations = {"example.com/owner": "team@example.com", "example.com/description": "An object to measure with."}
    containers = [
        {
            "name": f"container-{index}",
            "image": "registry.example.com/team/image:1.2.3",
            "env": [{"name": f"VARIABLE_{number}", "value": f"some value {number}"} for number in range(5)],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        }
        for index in range(2)
    ]
    spec = {"phase": phase, "replicas": 3, "schedule": "*/5 * * * *", "containers": containers}
    if handled:
        essence = {"spec": spec, "metadata": {"labels": labels, "annotations": dict(annotations)}}
        annotations[LAST_HANDLED] = msgspec.json.encode(essence).decode() + "\n"
    metadata: dict[str, Any] = {"name": name, "labels": labels, "annotations": annotations}
    if blocked:
        metadata["finalizers"] = [FINALIZER]
    return {"apiVersion": "bench.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


class RequestError(RuntimeError):
    """A request has been refused."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """The load's own connection to the cluster. It counts its own requests, so that they are not the operator's."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str, *, is_local: bool) -> None:
        self._session = session
        self._path = f"{API}/namespaces/{namespace}/widgets"
        self._is_local = is_local
        self.requests = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls, info: ConnectionInfo, namespace: str = "default", *, is_local: bool = True
    ) -> AsyncIterator[Client]:
        """Connect to a cluster; only the local one counts the requests."""
        secure = info.server.startswith("https:")
        connector = aiohttp.TCPConnector(ssl=info.as_ssl_context() if secure else True, limit=0)
        async with aiohttp.ClientSession(
            info.server, connector=connector, headers=info.as_http_headers(), proxy=info.proxy_url
        ) as session:
            yield cls(session, namespace, is_local=is_local)

    async def request(self, method: str, path: str, payload: object = None, content_type: str = "") -> bytes:
        self.requests += 1
        data = None if payload is None else msgspec.json.encode(payload)
        headers = {"Content-Type": content_type or "application/json"}
        async with self._session.request(method, path, data=data, headers=headers) as response:
            content = await response.read()
            if response.status >= 400:
                raise RequestError(f"{method} {path}: {response.status} {content.decode()}", response.status)
            return content

    async def create(self, name: str, *, phase: str = "created", **kinds: Any) -> None:
        await self.request("POST", self._path, make_widget(name, phase, **kinds))

    async def change(self, name: str, *, phase: str = "updated") -> None:
        patch = {"spec": {"phase": phase}}
        await self.request("PATCH", f"{self._path}/{name}", patch, "application/merge-patch+json")

    async def delete(self, name: str) -> None:
        await self.request("DELETE", f"{self._path}/{name}")

    async def watch(self) -> AsyncIterator[Event]:
        """Watch all the objects from now on, with no end."""
        decoder = msgspec.json.Decoder(Event)
        listing = msgspec.json.decode(await self.request("GET", f"{self._path}?limit=1"))
        query = f"?watch=true&resourceVersion={listing['metadata']['resourceVersion']}"
        self.requests += 1
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._path + query, timeout=timeout, read_bufsize=2**20) as response:
            rest = b""
            while chunk := await response.content.readany():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield decoder.decode(line)
        raise RuntimeError("The watch-stream of the benchmark has ended.")

    async def reset_counters(self) -> None:
        if self._is_local:
            await self.request("DELETE", "/_kopf/counters")
        self.requests = 0

    async def read_counters(self) -> dict[str, int] | None:
        """
        Get the numbers of requests since the reset by the verb and the resource, with our own ones included.

        ``None`` if the cluster does not count them for us.
        """
        if not self._is_local:
            return None
        counters = msgspec.json.decode(await self.request("GET", "/_kopf/counters"))
        self.requests -= 1
        numbers: dict[str, int] = {}
        for entry in counters["requests"]:
            key = f"{entry['verb']} {entry['resource']}".strip()
            numbers[key] = numbers.get(key, 0) + entry["count"]
        return numbers


class Board:
    """Where it is noted when which objects were handled: by the phase and the name."""

    def __init__(self) -> None:
        self.times: dict[str, dict[str, float]] = {}
        self._waiters: dict[tuple[str, str], asyncio.Future[None]] = {}

    def note(self, phase: str, name: str) -> None:
        times = self.times.setdefault(phase, {})
        if name not in times:
            times[name] = time.perf_counter()
            if waiter := self._waiters.pop((phase, name), None):
                waiter.set_result(None)

    async def wait(self, phase: str, name: str) -> float:
        """Wait until the object is handled; tell when it was."""
        if name not in self.times.get(phase, {}):
            waiter = self._waiters[phase, name] = asyncio.get_running_loop().create_future()
            await waiter
        return self.times[phase][name]

    async def follow_stream(self, client: Client) -> None:
        """Note what is seen in the cluster: the last handled configurations, and the deletions."""
        async for event in client.watch():
            metadata = event.object.metadata
            if event.type == "DELETED":
                self.note("deleted", metadata.name)
            elif essence := metadata.annotations.get(LAST_HANDLED):
                phase = essence.partition('"phase":"')[2].partition('"')[0]
                self.note(phase, metadata.name)

    async def follow_reports(self, reader: asyncio.StreamReader) -> None:
        """Note what the handlers report."""
        while line := await reader.readline():
            phase, _, name = line.decode().strip().partition(" ")
            self.note(phase, name)


@dataclasses.dataclass(frozen=True)
class Pace:
    """How the load comes: objects per second, and how many of them can be not handled yet."""

    rate: float
    in_flight: int


async def load(
    action: Callable[[str], Awaitable[None]], names: Sequence[str], board: Board, phase: str, pace: Pace
) -> list[float]:
    """Do it for all the objects, wait until they are handled, and give for each how long it took, in seconds."""
    semaphore = asyncio.Semaphore(pace.in_flight)

    async def act(name: str) -> float:
        try:
            started = time.perf_counter()
            await action(name)
            return await board.wait(phase, name) - started
        finally:
            semaphore.release()

    tasks: list[asyncio.Task[float]] = []
    planned = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for name in names:
            await semaphore.acquire()
            await asyncio.sleep(planned - time.perf_counter())
            planned = max(planned, time.perf_counter() - _CATCHING_UP) + 1 / pace.rate
            tasks.append(group.create_task(act(name)))
    return [task.result() for task in tasks]
