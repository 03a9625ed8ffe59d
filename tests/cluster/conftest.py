"""
A running local cluster, and a client of it that shows what exactly was answered.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kopf_cluster import LocalCluster
from tests.certificates import trust
from tests.cluster.webhooks import Hooks, serve_hooks
from tests.patience import PATIENCE

Obj = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Reply(NamedTuple):
    status: int
    body: Any
    headers: Any


class Stream:
    """A watch stream, read event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Any:
        """Give the next event, or none when the stream ends."""
        line = await self._response.content.readline()
        return json.loads(line) if line else None

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Give the types and the names of the next so many events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


class Client:
    """Plain requests to the cluster."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def call(self, method: str, path: str, expected: int | None = None, **kwargs: Any) -> Reply:
        async with self.session.request(method, path, **kwargs) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            reply = Reply(response.status, json.loads(raw) if is_json else raw, response.headers)
        assert expected in (None, reply.status), reply
        return reply

    async def get(self, path: str, **kwargs: Any) -> Any:
        return (await self.call("GET", path, 200, **kwargs)).body

    async def create(self, path: str, obj: Obj) -> Any:
        return (await self.call("POST", path, 201, json=obj)).body

    async def patch(self, path: str, patch: Any, content_type: str = MERGE) -> Any:
        return (await self.send_patch(path, patch, content_type, 200)).body

    async def send_patch(
        self,
        path: str,
        patch: Any,
        content_type: str = MERGE,
        expected: int | None = None,
    ) -> Reply:
        return await self.call("PATCH", path, expected, data=json.dumps(patch), headers={"Content-Type": content_type})

    async def delete(self, path: str, **options: Any) -> Any:
        return (await self.call("DELETE", path, 200, json=options or None)).body

    async def wait(self, path: str, check: Callable[[Any], object] = bool) -> Any:
        """Wait until the object (or the list) is there and as expected."""
        async with asyncio.timeout(PATIENCE):
            while (reply := await self.call("GET", path)).status != 200 or not check(reply.body):
                await asyncio.sleep(0.001)
        return reply.body

    async def wait_gone(self, *paths: str) -> None:
        async with asyncio.timeout(PATIENCE):
            for path in paths:
                while (await self.call("GET", path)).status != 404:
                    await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **params: str) -> AsyncIterator[Stream]:
        async with self.session.get(path, params={"watch": "1", **params}) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


@contextlib.asynccontextmanager
async def connect(cluster: LocalCluster) -> AsyncIterator[Client]:
    """Connect by the network, as others do."""
    async with _open(cluster, aiohttp.TCPConnector(ssl=trust(cluster.ca_data), limit=0)) as client:
        yield client


@contextlib.asynccontextmanager
async def connect_in_memory(cluster: LocalCluster) -> AsyncIterator[Client]:
    """Connect with the same HTTP, but no TCP and no TLS, for tests that are about what is asked and answered."""
    async with _open(cluster, cluster.open_network().make_connector()) as client:
        yield client


@contextlib.asynccontextmanager
async def _open(cluster: LocalCluster, connector: aiohttp.BaseConnector) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {cluster.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(cluster.url, connector=connector, headers=headers, timeout=timeout) as session:
        yield Client(session)


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, shared_certificates: None) -> AsyncIterator[LocalCluster]:
    """A new cluster; a module can say in ``CLUSTER`` what is to be special of it."""
    async with LocalCluster(**getattr(request.module, "CLUSTER", {"bare": True})) as cluster:
        yield cluster


@pytest.fixture
async def client(request: pytest.FixtureRequest, cluster: LocalCluster) -> AsyncIterator[Client]:
    """A client of it; a module that is about connections says ``CONNECT = connect``, for those by the network."""
    async with getattr(request.module, "CONNECT", connect_in_memory)(cluster) as client:
        yield client


@pytest.fixture
async def hooks(tmp_path: pathlib.Path) -> AsyncIterator[Hooks]:
    async with serve_hooks(tmp_path) as hooks:
        yield hooks


def make_definition(
    plural: str = "kexes",
    kind: str = "Kex",
    *,
    scope: str = "Namespaced",
    spec: Obj | None = None,
    **version: Any,
) -> Obj:
    """Make a definition in the group ``example.com`` with one version, of any contents by default."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec or anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def make_request() -> str:
    """Make a request for a certificate, in PEM and base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


KEXES = "/apis/example.com/v1/namespaces/default/kexes"


def make_kex(name: str = "one", **fields: Any) -> Obj:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Kex", "metadata": metadata, "spec": {}, **fields}


def make_config_map(name: str = "one", **fields: Any) -> Obj:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def kexes(cluster: LocalCluster) -> str:
    """The path of a custom resource with the status subresource and of any contents."""
    cluster.apply(make_definition())
    return KEXES


def causes(reply: Reply) -> list[tuple[str, str]]:
    """Give the wrong fields and the reasons of a refusal as invalid."""
    assert reply.status == 422, reply
    return [(cause["field"], cause["reason"]) for cause in reply.body["details"]["causes"]]
