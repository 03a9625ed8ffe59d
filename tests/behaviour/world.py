"""
A small world for the state machine: a cluster, a user of it, and an operator that lives, dies, and lives again.

All of it runs on one fast-forwarded event loop, which only runs while something is awaited, step by step.
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
from kopf_cluster import LocalCluster
from kopf_cluster.writes.patches import merge_patch
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import Obj, Objects, Refused, connect, make_connector, watch
from tests.behaviour.peerings import PeeringObject, define_peering
from tests.behaviour.plans import Call, Life, Plan
from tests.fastforward import FastForwardLoop

T = TypeVar("T")

FOREIGN_FINALIZER = "foreign.example.com/finalizer"
VERSION_PATH = "^/version$"
REFUSAL = "nothing is accepted now"


class World:
    """Everything that exists in one example."""

    def __init__(
            self, plans: list[Plan], *, plural: str, comparable: bool, peered: bool, lag: float, seed: int,
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
        self._comparable = comparable
        self._peered = peered
        self._lag = lag
        self._seed = seed
        self._runner = asyncio.Runner(loop_factory=FastForwardLoop)
        self._stack = contextlib.AsyncExitStack()
        self._task: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._stop_flag = asyncio.Event()
        self.run(self._build())

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Let the time go until it is done."""
        return self._runner.run(coro)

    async def _build(self) -> None:
        self.cluster = await self._stack.enter_async_context(LocalCluster(seed=self._seed))
        self.lag(self._lag)
        kind = "KopfStatusExample" if "status" in self.plural else "KopfExample"
        self.cluster.apply(make_crd(kind, self.plural, status="status" in self.plural))
        if not self._comparable:
            self.cluster.faults.inject(404, path=VERSION_PATH)
        self.api = await self._stack.enter_async_context(connect(self.cluster))
        if self._peered:
            define_peering(self.cluster)
            self.peering = PeeringObject(self.api)
            await self.peering.create()
        self.objects: Objects = await self._stack.enter_async_context(watch(self.api, kind, self.plural))

    def close(self) -> None:
        try:
            if self._task is not None:
                self.run(self.kill())
            self.run(self._stack.aclose())
        finally:
            self._runner.close()

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

    async def start(self) -> None:
        """Begin a new life, and wait until it is ready to work."""
        life = Life(len(self.lives), self.journal)
        registry = kopf.OperatorRegistry()
        self._session = session = self._make_session()

        async def login(**_: Any) -> kopf.AiohttpSession:
            if life.is_dead:
                await asyncio.Event().wait()
            return kopf.AiohttpSession(server=self.cluster.url, aiohttp_session=session)

        kopf.on.login(registry=registry)(login)
        for plan in self.plans:
            life.declare(plan, self.plural, registry)
        self.lives.append(life)
        self.controllers.clear()
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.peering.priority = life.number  # so that the records of the killed ones do not pause it
        self._stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(kopf.operator(
            registry=registry, settings=settings, clusterwide=True, stop_flag=self._stop_flag, ready_flag=ready_flag,
        ))
        ready = asyncio.create_task(ready_flag.wait())
        await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._task

    def _make_session(self) -> aiohttp.ClientSession:
        headers = {"Authorization": f"Bearer {self.cluster.token}"}
        return aiohttp.ClientSession(headers=headers, connector=make_connector(self.cluster))

    @property
    def is_running(self) -> bool:
        return self._task is not None

    async def stop(self) -> None:
        """Let the operator exit as it wants to."""
        assert self._task is not None
        self._stop_flag.set()
        await self._task
        self._task = None

    async def kill(self) -> None:
        """
        Cut the operator off from the cluster at this very moment, and remove what is left of it.

        Whatever it does after that (it is only a task, it cannot be killed really), nobody learns of that.
        """
        assert self._task is not None
        assert self._session is not None
        self.lives[-1].is_dead = True
        await self._session.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

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
                "uid": obj["metadata"]["uid"], "finalizers": [], "status": {},
                "spec": spec, "labels": labels, "annotations": annotations,
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
                {"op": "add", "path": "/metadata/finalizers", "value": finalizers}, name=meta["name"],
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
