"""The controller of one resource, with its workers; what is tested here, needs neither an API nor a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._client.resources.watch_machine import WatchEvent
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
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

KEX = Resource("kopf.dev", "v1", "kopfexamples", kind="KopfExample", namespaced=True)
OBJ: dict[str, Any] = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "obj", "namespace": "default", "uid": "uid1", "resourceVersion": "1"},
}
EVENT = WatchEvent("ADDED", KubeObject.from_dict(OBJ))
NEWER = {**OBJ, "metadata": {**OBJ["metadata"], "resourceVersion": "2"}}
MODIFIED = WatchEvent("MODIFIED", KubeObject.from_dict(NEWER))


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
async def controller(calls: list[str]) -> Controller:
    registry, settings = OperatorRegistry(), OperatorSettings()

    # With no finalizers and no patches, so there are no requests.
    @kopf.daemon("kopfexamples", registry=registry, optional=True)
    async def daemon(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("daemon")
        await stopped.wait()
        calls.append("stopped")

    @kopf.on.event("kopfexamples", registry=registry)
    async def event(**_: Any) -> None:
        calls.append("event")

    indexers = Indexers(registry.get_indexing())
    runtime = Runtime(
        settings=settings,
        api=APIClient(Vault(settings), settings),
        clock=Clock(),
        lifecycle=get_default_lifecycle(),
        executor=HandlerExecutor(settings.execution),
        memos=Memos(Memo()),
        indices=indexers.indices,
        indexers=indexers,
        index_readiness=IndexReadiness(),
        comparable_versions=True,
    )
    return Controller(runtime, KEX, registry.plan([KEX])[KEX])


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_comes_is_handled(controller: Controller, calls: list[str]) -> None:
    controller.accept([EVENT])
    await _settle()
    await controller.stop()
    assert calls == ["event", "daemon", "stopped"]


async def test_workers_who_have_not_begun_before_the_exit_start_nothing(
    controller: Controller,
    calls: list[str],
) -> None:
    controller.accept([EVENT])
    await controller.stop()
    await _settle()
    assert calls == []


async def test_workers_who_have_not_begun_before_a_pause_go_on_after_it(
    controller: Controller,
    calls: list[str],
) -> None:
    controller.accept([EVENT])
    controller.pause()
    await _settle()
    assert calls == []
    controller.resume()
    await _settle()
    await controller.stop()
    assert calls == ["event", "daemon", "stopped"]


async def test_objects_that_are_held_by_themselves_wait_and_their_daemons_stop(
    controller: Controller,
    calls: list[str],
) -> None:
    pause = controller.scope.runtime.pause
    controller.accept([EVENT])
    await _settle()
    pause.hold_some(lambda key: key == "uid1")
    await _settle()
    controller.accept([MODIFIED])
    await _settle()
    assert calls == ["event", "daemon", "stopped"]
    pause.hold_some(None)
    await _settle()
    assert calls == ["event", "daemon", "stopped", "event", "daemon"]
    await controller.stop()


async def test_an_object_is_looked_at_again_when_asked_for(controller: Controller, calls: list[str]) -> None:
    """E.g. by another controller, as something has changed that the object depends on."""
    controller.enqueue(EVENT.object)
    await _settle()
    await controller.stop()
    assert calls == ["daemon", "stopped"]
