"""
A small world for the state machine: a cluster, a user of it, and an operator that lives, dies, and lives again.

All of it is a simulation, whose time only goes while something is awaited, step by step.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import aiohttp
import pytest

import kopf
from kopf._controller.controller import Controller
from kopf.testing import SyncSimulation
from kopf_cluster.patches import merge_patch
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import Obj, Objects, Refused, connect, watch
from tests.behaviour.peerings import CRDS, PeeringObject
from tests.behaviour.plans import Call, Life, Plan, declare

T = TypeVar("T")

FOREIGN_FINALIZER = "foreign.example.com/finalizer"
VERSION_PATH = "^/version$"
REFUSAL = "nothing is accepted now"


class World:
    """Everything that exists in one example."""

    def __init__(
        self,
        plans: list[Plan],
        *,
        plural: str,
        comparable: bool,
        peered: bool,
        lag: float,
        seed: int,
    ) -> None:
        self.plans = plans
        self.plural = plural
        self.journal: list[Call] = []
        self.lives: list[Life] = []
        self.expected: dict[str, Obj] = {}
        """What is to be there on the objects besides the traces of the operator."""
        self.born: dict[str, tuple[int, float]] = {}
        """In which life the objects were created (by their uids), and when."""
        self.controllers: list[Controller] = []
        """Those of the current life."""
        self.peering: PeeringObject | None = None
        """By which the operator is paused, if it can be."""
        self._stack = contextlib.ExitStack()
        kind = "KopfStatusExample" if "status" in plural else "KopfExample"
        crds = [make_crd(kind, plural, status="status" in plural), *([CRDS] if peered else [])]
        self._facade = self._stack.enter_context(
            SyncSimulation(
                registry=self._declare(),
                settings=make_settings,
                crds=crds,
                operator=False,
                seed=seed,
            )
        )
        self.simulation = self._facade.simulation
        self.cluster = self.simulation.cluster
        self.lag(lag)
        if not comparable:
            self.cluster.faults.inject(404, path=VERSION_PATH)
        self._clients = contextlib.AsyncExitStack()
        self._stack.callback(lambda: self.run(self._clients.aclose()))
        self.run(self._connect(kind, peered))

    async def _connect(self, kind: str, peered: bool) -> None:
        self.api = await self._clients.enter_async_context(connect(self.cluster))
        if peered:
            self.peering = PeeringObject(self.api)
            await self.peering.create()
        self.objects: Objects = await self._clients.enter_async_context(watch(self.api, kind, self.plural))

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Let the time go until it is done, unless something is wrong with the operator or with the time."""
        return self._facade.run(self.simulation.wait(coro))

    def close(self) -> None:
        self._stack.close()

    def lag(self, most: float) -> None:
        """Let all that happens be known late: up to so many seconds."""
        self.cluster.faults.lag_watches(0, up_to=most) if most else self.cluster.faults.lag_watches(None)

    def refuse(self, status: int) -> None:
        """Let the API accept no changes of the objects, of whomever."""
        self.cluster.faults.inject(status, method="PATCH", path=f"/{self.plural}/", message=REFUSAL)

    def cure(self) -> None:
        """End all the trouble with requests."""
        self.cluster.faults.replace([rule for rule in self.cluster.faults.rules if rule.path == VERSION_PATH])

    # The operator.

    def _declare(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def begin(memo: kopf.Memo, **_: Any) -> None:
            memo.life = Life(len(self.lives), self.journal)
            self.lives.append(memo.life)
            self.controllers.clear()

        for plan in self.plans:
            declare(plan, self.plural, registry)
        return registry

    async def pause(self, is_paused: bool) -> None:
        """Let another operator appear that has the priority, or let it go."""

        async def put() -> None:
            if self.peering is not None and is_paused:
                await self.peering.put("other", priority=10**6, lifetime=1e9)
            elif self.peering is not None:
                await self.peering.remove("other")

        await self._insist(put)

    # The user.

    async def create(self, name: str, x: int, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create an object, unless it is there."""
        try:
            spec = {"x": x, "nested": {"list": [x]}}
            obj = await self.objects.create(name, spec=spec, labels=labels, annotations=annotations)
        except Refused as e:
            if e.status != 409:
                raise
        else:
            self.expected[name] = {
                "uid": obj["metadata"]["uid"],
                "finalizers": [],
                "status": {},
                "spec": spec,
                "labels": labels,
                "annotations": annotations,
            }
            self.born[obj["metadata"]["uid"]] = (len(self.lives), asyncio.get_running_loop().time())

    async def change(self, name: str, patch: Obj, *, status: bool = False) -> None:
        """Merge the patch to the object, if it is there; repeat it as long as the API is broken."""
        subresource = "status" if status and "status" in self.plural else ""
        if await self._insist(lambda: self.objects.merge(patch, name, subresource=subresource)):
            meta = patch.get("metadata", {})
            for stanza, changes in {**patch, **meta}.items():
                for key, value in changes.items() if stanza != "metadata" else ():
                    self.expected[name][stanza] = merge_patch(self.expected[name][stanza], {key: value})

    async def hold(self, name: str) -> None:
        """Put a foreign finalizer on the object."""

        async def put() -> None:
            obj = await self.objects.get(name)
            finalizers = obj["metadata"].get("finalizers") or []
            if FOREIGN_FINALIZER not in finalizers and "deletionTimestamp" not in obj["metadata"]:
                await self._set_finalizers(obj, [*finalizers, FOREIGN_FINALIZER], [FOREIGN_FINALIZER])

        await self._insist(put)

    async def release(self, name: str) -> None:
        """Remove the foreign finalizer."""

        async def put() -> None:
            obj = await self.objects.get(name)
            finalizers = obj["metadata"].get("finalizers") or []
            if FOREIGN_FINALIZER in finalizers:
                await self._set_finalizers(obj, [item for item in finalizers if item != FOREIGN_FINALIZER], [])

        await self._insist(put)

    async def _set_finalizers(self, obj: Obj, finalizers: list[str], expected: list[str]) -> None:
        meta = obj["metadata"]
        previous = [FOREIGN_FINALIZER] if FOREIGN_FINALIZER in (meta.get("finalizers") or []) else []
        self.expected[meta["name"]]["finalizers"] = expected  # even if the answer gets lost
        try:
            await self.objects.edit(
                {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
                {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
                name=meta["name"],
            )
        except Refused as e:
            if REFUSAL in str(e):
                self.expected[meta["name"]]["finalizers"] = previous
            raise

    async def delete(self, name: str) -> None:
        """Request the deletion."""
        await self._insist(lambda: self.objects.delete(name))

    async def _insist(self, request: Any) -> bool:
        """Repeat the request until it is done, or until it is clear that there is no object, or no hope."""
        is_unclear = False
        while True:
            try:
                await request()
            except Refused as e:
                if REFUSAL in str(e) and is_unclear:
                    self.cure()  # it can be done already, with only the answer lost
                elif e.status == 404 or REFUSAL in str(e):
                    return False
                await asyncio.sleep(0.1)
            except aiohttp.ClientError:
                is_unclear = True
                await asyncio.sleep(0.1)
            else:
                return True

    async def list(self) -> list[Obj]:
        """All that exists now, once it is all seen in the history too."""
        while True:
            listing = await self.api.request("GET", f"/apis/kopf.dev/v1/namespaces/default/{self.plural}")
            seen = {obj["metadata"]["resourceVersion"] for _, obj in self.objects.history}
            if all(obj["metadata"]["resourceVersion"] in seen for obj in listing["items"]):
                return list(listing["items"])
            await asyncio.sleep(0.1)


def make_settings() -> kopf.OperatorSettings:
    """Make the settings of one life."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    return settings


@contextlib.contextmanager
def watching_controllers(worlds: list[World]) -> Iterator[None]:
    """Let the current world know all its controllers, in order to look into their memory afterwards."""
    init = Controller.__init__

    def watched_init(self: Controller, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        worlds[-1].controllers.append(self)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Controller, "__init__", watched_init)
        yield
