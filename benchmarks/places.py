"""
Where operators are measured: on a new local cluster each time, or on any other cluster, as a guest.

The guest has a namespace and a definition of a resource of its own, and leaves nothing behind. The operators serve all
namespaces, but only that resource: nothing else in the cluster is touched. What only the local cluster tells (how many
requests there were, and the CPU of the server) is not known of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from benchmarks.cluster import DEFINITION
from benchmarks.loading import API, Client, RequestError
from benchmarks.processes import Meter, running_cluster
from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.kubeconfig import make_connection_info, read_kubeconfigs

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD = f"{_CRDS}/widgets.bench.example.com"
_NAMESPACES = "/api/v1/namespaces"
_TIMEOUT = 120.0
"""How long a definition or a namespace may take to appear or to disappear, in seconds."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A cluster that serves the resource of the benchmark."""

    kubeconfig: str
    client: Client
    meter: Meter | None
    """Of the process of the local cluster."""


def read_info(kubeconfig: str) -> ConnectionInfo:
    """Get the credentials of the current context; there can be several files, as in ``KUBECONFIG``."""
    return make_connection_info(read_kubeconfigs(kubeconfig.split(os.pathsep)))


@contextlib.asynccontextmanager
async def local_place(folder: pathlib.Path, gates: Sequence[str] = ()) -> AsyncIterator[Place]:
    """Run a new local cluster, with these features turned on."""
    kubeconfig = folder / "kubeconfig.yaml"
    async with running_cluster(kubeconfig, gates) as meter, Client.connected(read_info(str(kubeconfig))) as client:
        yield Place(str(kubeconfig), client, meter)


@contextlib.asynccontextmanager
async def foreign_place(kubeconfig: str) -> AsyncIterator[Place]:
    """
    Be a guest of the cluster.

    Raises :class:`RuntimeError` if the definition is there already: somebody else's, or of a killed benchmark.
    """
    namespace = f"kopf-benchmark-{os.urandom(4).hex()}"
    info = await asyncio.to_thread(read_info, kubeconfig)
    async with Client.connected(info, namespace, is_local=False) as client:
        try:
            await client.request("POST", _CRDS, DEFINITION)
        except RequestError as e:
            if e.status != 409:
                raise
            raise RuntimeError(
                "The definition of the benchmark is in the cluster already: somebody measures there, or was killed. "
                "If nobody does, delete it: kubectl delete crd widgets.bench.example.com"
            ) from e
        try:
            await _wait(client, f"{API}/widgets", 200)
            await client.request("POST", _NAMESPACES, {"metadata": {"name": namespace}})
            yield Place(kubeconfig, client, None)
        finally:
            await _clean_up(client, namespace)


async def _clean_up(client: Client, namespace: str) -> None:
    """Remove everything. The operators are stopped already, so their finalizers are removed here."""
    with contextlib.suppress(RequestError):  # it is not served yet, so there are no objects
        await _remove_finalizers(client)
    deleted = []
    for path in (f"{_NAMESPACES}/{namespace}", _CRD):
        with contextlib.suppress(RequestError):  # it has never been made: the error of that is worth more
            await client.request("DELETE", path)
            deleted.append(path)
    for path in deleted:
        await _wait(client, path, 404)


async def _remove_finalizers(client: Client) -> None:
    widgets = msgspec.json.decode(await client.request("GET", f"{API}/widgets"))["items"]
    for widget in widgets:
        metadata = widget["metadata"]
        if metadata.get("finalizers"):
            path = f"{API}/namespaces/{metadata['namespace']}/widgets/{metadata['name']}"
            await client.request("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


async def _wait(client: Client, path: str, status: int) -> None:
    """Wait until it is answered with this status."""
    async with asyncio.timeout(_TIMEOUT):
        while await _get_status(client, path) != status:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.2)


async def _get_status(client: Client, path: str) -> int:
    try:
        await client.request("GET", path)
    except RequestError as e:
        return e.status
    return 200
