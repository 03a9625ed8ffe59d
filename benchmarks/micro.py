"""
Measure the parts of the framework, one by one: what an event, a change, an API call, or a listing takes.

    .venv/bin/python -m benchmarks.micro
    .venv/bin/python -m benchmarks.micro --cycle  # only the handling cycle, see `benchmarks.cycle`

All numbers are of CPU, not of time: those of this process for the framework, those of the server's process for
the local cluster. The best of several rounds is taken, as anything else on the machine only makes it worse.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import pathlib
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from benchmarks.cycle import measure_cycles, print_cycles
from benchmarks.loading import PATH, Client, make_widget
from benchmarks.places import read_info
from benchmarks.processes import Meter, running_cluster
from kopf._client.auth.kubeconfig import make_connection_info, read_kubeconfigs
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._client.resources.listing import list_pages
from kopf._client.resources.patching import patch_object
from kopf._client.resources.targets import Target
from kopf._client.resources.watching import watch_batches
from kopf._controller.changes.detection import detect
from kopf._controller.controller import Controller
from kopf._controller.indexing.indexers import Indexers
from kopf._controller.indexing.readiness import IndexReadiness
from kopf._controller.memos import Memo, Memos
from kopf._controller.runtime import Runtime
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.lifecycles import get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.time_source import Clock
from kopf._settings.settings import OperatorSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource
from kopf.on import create

WIDGETS = Resource("bench.example.com", "v1", "widgets", kind="Widget", namespaced=True)
ROUNDS = 5

logger = logging.getLogger(__name__)


class Replay(APIClient):
    """An API of prepared answers: an empty listing, and a stream of lines in batches, which then stays open."""

    def __init__(self, settings: OperatorSettings, batches: list[list[bytes]]) -> None:
        super().__init__(Vault(settings), settings)
        self._batches = batches

    async def get(self, path: str, **_: Any) -> bytes:
        return b'{"kind":"WidgetList","metadata":{"resourceVersion":"1"},"items":[]}'

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        for batch in self._batches:
            yield batch


def report(title: str, seconds: float, count: int) -> None:
    """Print what one of many has taken."""
    micros = seconds / count * 1e6
    print(f"{title:<64} {micros:9.1f} µs  {1e6 / micros:11,.0f}/s", flush=True)


async def best(action: Callable[[], Awaitable[Any]], clock: Callable[[], float] = time.process_time) -> float:
    """Do it several times, and give the least CPU that it has taken."""
    taken = []
    for _ in range(ROUNDS):
        started = clock()
        await action()
        taken.append(clock() - started)
    return min(taken)


def make_line(index: int, *, handled: bool = True) -> bytes:
    """Make a line of a watch-stream as the server sends it."""
    widget = make_widget(f"widget-{index:06}", "created", handled=handled)
    widget["metadata"] |= {
        "namespace": "default",
        "uid": f"00000000-0000-0000-0000-{index:012}",
        "resourceVersion": str(1000 + index),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return msgspec.json.encode({"type": "ADDED", "object": widget})


async def measure_intake(count: int) -> None:
    """Take events in when no handler is for them: decode them, find that out, forget them."""
    settings = OperatorSettings()
    lines = [make_line(index) for index in range(count)]
    replay = Replay(settings, [lines[index : index + 10] for index in range(0, count, 10)])
    registry = OperatorRegistry()
    create(WIDGETS.group, WIDGETS.version, WIDGETS.plural, labels={"tier": "frontend"}, registry=registry)(_handler)
    indexers = Indexers(registry.get_indexing())
    env = Runtime(
        settings=settings,
        api=replay,
        clock=Clock(),
        lifecycle=get_default_lifecycle(),
        executor=HandlerExecutor(settings.execution),
        memos=Memos(Memo()),
        indices=indexers.indices,
        indexers=indexers,
        index_readiness=IndexReadiness(),
        comparable_versions=True,
    )
    controller = Controller(env, WIDGETS, registry.plan([WIDGETS])[WIDGETS])

    async def consume(accept: Callable[[list[Any]], None]) -> None:
        taken = 0
        async with contextlib.aclosing(watch_batches(replay, settings, Target(WIDGETS))) as batches:
            async for events in batches:
                accept(events)
                taken += len(events)
                if taken > count:  # with the mark of the listing
                    return

    cpu = await best(lambda: consume(lambda events: None))
    report("a watch line decoded", cpu, count)
    cpu = await best(lambda: consume(controller.accept))
    report("a watch line decoded & dispatched, with no matching handler", cpu, count)


async def _handler(**_: Any) -> None:
    pass


async def measure_detection(count: int) -> None:
    """Find out what has happened to an object."""
    persistence = OperatorSettings().persistence
    snapshots = Snapshots(persistence.diffbase_storage, persistence.progress_storage)
    sources = {
        "a change detected: new objects": make_line(1, handled=False),
        "a change detected: nothing has changed": make_line(1),
        "a change detected: one field has changed": make_line(1).replace(b'"replicas":3', b'"replicas":4', 1),
    }
    for title, line in sources.items():
        raw = bytes(msgspec.json.decode(line, type=dict[str, msgspec.Raw])["object"])

        async def act(raw: bytes = raw) -> None:
            for _ in range(count):
                detect(KubeObject.from_json(raw), snapshots, finalizer=persistence.finalizer, initial=False)

        report(title, await best(act), count)


@contextlib.asynccontextmanager
async def connected(kubeconfig: pathlib.Path) -> AsyncIterator[tuple[APIClient, OperatorSettings]]:
    """Log in to the cluster, as operators do."""
    settings = OperatorSettings()
    vault = Vault(settings)
    vault.populate([make_connection_info(read_kubeconfigs([str(kubeconfig)]))])
    try:
        yield APIClient(vault, settings), settings
    finally:
        await vault.close()


async def measure_patching(client: Client, api: APIClient, count: int) -> None:
    """Patch one object many times, one after another: by the bare HTTP library, and by the framework."""
    await client.create("patched")
    path = f"{PATH}/patched"
    obj = KubeObject.from_json(await api.get(path))
    annotation = {"example.com/some-annotation": "x" * 500}

    async def patch_bare() -> None:
        for index in range(count):
            patch = {"metadata": {"annotations": {**annotation, "n": str(index)}}}
            await client.request("PATCH", path, patch, "application/merge-patch+json")

    async def patch_by_client() -> None:
        for index in range(count):
            await api.patch(path, payload={"metadata": {"annotations": {**annotation, "n": str(index)}}})

    async def patch_by_framework() -> None:
        for index in range(count):
            patch = Patch({"metadata": {"annotations": {**annotation, "n": str(index)}}})
            await patch_object(api, WIDGETS, obj, patch, logger=logger)

    report("PATCH by bare aiohttp", await best(patch_bare), count)
    report("PATCH by the client", await best(patch_by_client), count)
    report("PATCH by the framework: composed, sent, and the response decoded", await best(patch_by_framework), count)


async def measure_listing(
    client: Client, api: APIClient, settings: OperatorSettings, cluster: Meter, count: int
) -> None:
    """List many objects; and what the server takes for that, and for keeping them."""
    memory = cluster.memory
    cpu = cluster.cpu
    for index in range(count):
        await client.create(f"listed-{index:06}", handled=True)
    report("cluster: an object created", cluster.cpu - cpu, count)
    print(
        f"cluster: memory per object of 1-2 KB, with the history: {(cluster.memory - memory) / count:.1f} KiB; "
        f"in total: {cluster.memory / 1024:.0f} MiB"
    )

    async def list_all() -> None:
        total = 0
        async with contextlib.aclosing(list_pages(api, settings, Target(WIDGETS))) as pages:
            async for page in pages:
                total += len(page.objects)
        if total < count:
            raise RuntimeError(f"Only {total} objects are listed.")

    report(f"an object of {count:,} listed by pages", await best(list_all), count)
    report(f"cluster: an object of {count:,} listed by pages", await best(list_all, lambda: cluster.cpu), count)

    async def list_at_once() -> None:
        await client.request("GET", PATH)

    report(f"cluster: an object of {count:,} listed at once", await best(list_at_once, lambda: cluster.cpu), count)


async def measure_cluster_patches(client: Client, cluster: Meter, count: int) -> None:
    """Patch many objects at once, with one watcher on them."""

    async def watch() -> None:
        async for _ in client.watch():
            pass

    async def patch_some(number: int) -> None:
        for index in range(count // 10):
            await client.change(f"listed-{number * 100 + index % 100:06}", phase=f"phase-{index}")

    watcher = asyncio.create_task(watch())
    try:
        cpu = await best(lambda: asyncio.gather(*map(patch_some, range(10))), lambda: cluster.cpu)
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
    report("cluster: a merge-patch with one watcher", cpu, count)


async def main(size: int) -> None:
    print_cycles(await measure_cycles())
    await measure_intake(10 * 1000)
    await measure_detection(2000)
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as directory:
        kubeconfig = pathlib.Path(directory) / "kubeconfig.yaml"
        started = time.perf_counter()
        async with running_cluster(kubeconfig) as cluster:
            print(
                f"cluster: started in {time.perf_counter() - started:.2f} s, {cluster.cpu:.2f} s of CPU, "
                f"{cluster.memory / 1024:.0f} MiB"
            )
            async with Client.connected(read_info(str(kubeconfig))) as client, connected(kubeconfig) as (api, settings):
                await measure_patching(client, api, 500)
                await measure_listing(client, api, settings, cluster, size)
                await measure_cluster_patches(client, cluster, 2000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    parser.add_argument("--size", type=int, default=10_000, help="how many objects to list (default: %(default)s)")
    parser.add_argument("--cycle", action="store_true", help="measure only the handling cycle: some seconds")
    args = parser.parse_args()
    if args.cycle:
        print_cycles(asyncio.run(measure_cycles()))
    else:
        asyncio.run(main(args.size))
