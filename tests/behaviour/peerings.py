"""Peering objects, by which the operators know of each other; and other operators, real ones and mere records."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, MERGE_PATCH, Refused, get_patience
from tests.behaviour.running import Operator

CRDS = pathlib.Path(__file__).parent.parent.parent / "examples" / "peering" / "crds.yaml"


def define_peering(
    cluster: LocalCluster,
    *,
    group: str = "kopf.dev",
    status: bool = False,
    preserve: bool = True,
) -> None:
    """Define the kinds of the peering objects: with or without the status subresource; correctly or not."""
    text = CRDS.read_text().replace("kopf.dev", group)
    text = text if preserve else text.replace("preserve-unknown-fields: true", "preserve-unknown-fields: false")
    served = "      served: true\n"
    cluster.apply(text.replace(served, f"{served}      subresources: {{status: {{}}}}\n") if status else text)


class PeeringObject:
    """One peering object: of the cluster, or of a namespace if it is named."""

    def __init__(
        self,
        api: API,
        namespace: str | None = None,
        name: str = "default",
        *,
        group: str = "kopf.dev",
        status: bool = False,
    ) -> None:
        self._api = api
        self._suffix = "/status" if status else ""
        self._name = name
        self._kind = "ClusterKopfPeering" if namespace is None else "KopfPeering"
        self._group = group
        scope = "" if namespace is None else f"/namespaces/{namespace}"
        self._path = f"/apis/{group}/v1{scope}/{self._kind.lower()}s"

    async def create(self, **content: Any) -> None:
        head = {"apiVersion": f"{self._group}/v1", "kind": self._kind, "metadata": {"name": self._name}}
        async with asyncio.timeout(get_patience()):
            while True:
                with contextlib.suppress(Refused):  # until the kind is served
                    await self._api.request("POST", self._path, {**head, **content})
                    return
                await asyncio.sleep(0.01)

    async def delete(self) -> None:
        await self._api.request("DELETE", f"{self._path}/{self._name}")

    async def get_records(self) -> dict[str, Any]:
        """Read who is there."""
        obj = await self._api.request("GET", f"{self._path}/{self._name}")
        return dict(obj.get("status") or {})

    async def wait(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait until the condition is true for the records."""
        async with asyncio.timeout(get_patience()):
            while not condition(records := await self.get_records()):
                await asyncio.sleep(get_patience() / 5000)
        return records

    async def put(self, identity: str, record: Any = None, *, priority: int = 10, lifetime: float = 60) -> None:
        """Write a record of some other operator, as if it was just seen."""
        now = datetime.datetime.now(datetime.UTC).isoformat()
        default = {"priority": priority, "lifetime": lifetime, "lastseen": now}
        await self._patch({identity: default if record is None else record})

    async def remove(self, identity: str) -> None:
        await self._patch({identity: None})

    async def _patch(self, status: Any) -> None:
        path = f"{self._path}/{self._name}{self._suffix}"
        await self._api.request("PATCH", path, {"status": status}, MERGE_PATCH)


async def create_peering(
    api: API,
    namespace: str | None = None,
    name: str = "default",
    **content: Any,
) -> PeeringObject:
    """Define the kinds, and create the object."""
    define_peering(api.cluster)
    peering = PeeringObject(api, namespace, name)
    await peering.create(**content)
    return peering


def make_other(registry: kopf.OperatorRegistry) -> kopf.OperatorRegistry:
    """Make a registry for one more operator, with the same login."""
    other = kopf.OperatorRegistry()
    for activity in registry.activities:
        other.append(activity)
    return other


@contextlib.asynccontextmanager
async def running(cluster: LocalCluster, registry: kopf.OperatorRegistry, **options: Any) -> AsyncIterator[Operator]:
    """Run one more operator as long as the block lasts."""
    operator = Operator(cluster, registry)
    await operator.launch(**options)
    try:
        yield operator
    finally:
        if operator.is_running:
            await operator.stop()
