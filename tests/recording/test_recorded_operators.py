"""Operators that are recorded while they run inside of other applications, and while others look at them."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

import kopf
from kopf.testing import LocalCluster, replay
from tests.patience import PATIENCE
from tests.ports import find_free_port
from tests.recording.reading import list_kinds, read_all

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "01-minimal"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        cluster.apply(EXAMPLE / "obj.yaml")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


def make_registry(called: asyncio.Event) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.create("kopfexamples", registry=registry, id="create_fn")
    async def create_fn(**_: Any) -> dict[str, int]:
        called.set()
        return {"size": 1}

    return registry


async def run_recorded(
    path: pathlib.Path | str,
    cluster: LocalCluster,
    settings: kopf.OperatorSettings,
    look: Any = None,
    **options: Any,
) -> None:
    called, stop = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(
            registry=make_registry(called),
            standalone=True,
            stop_flag=stop,
            settings=settings,
            record=path,
            **options,
        )
    )
    async with asyncio.timeout(PATIENCE):
        await called.wait()
        await asyncio.to_thread(
            cluster.wait_for,
            "kex",
            "kopf-example-1",
            lambda obj: "create_fn" in obj.get("status", {}),
        )
        if look is not None:
            await look()
        stop.set()
        await running


async def test_embedded_operators_are_recorded(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "recording"
    await run_recorded(str(path), cluster, kopf.OperatorSettings())
    assert {"head", "req", "res", "open", "call", "done", "stop"} <= {*list_kinds(path)}
    registry = make_registry(asyncio.Event())
    result = await asyncio.to_thread(replay, path, registry=registry)
    assert not result.divergences, str(result)
    assert [call.id for call in [*result.journal]] == ["create_fn"]


async def test_recordings_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    with pytest.raises(kopf.OperatorError, match="nowhere/recording' cannot be written: No such file or directory"):
        await kopf.operator(registry=make_registry(asyncio.Event()), record=tmp_path / "nowhere" / "recording")


async def test_what_tools_ask_is_no_part_of_a_recording(
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever looks at the operator, must not make its replays diverge."""
    caplog.set_level(logging.INFO)
    path, settings = tmp_path / "recording", kopf.OperatorSettings()
    settings.console.endpoint = f"http://127.0.0.1:{find_free_port()}"

    async def look() -> None:
        params = {"resource": "kopfexamples", "namespace": "default", "name": "kopf-example-1"}
        url = f"{settings.console.endpoint}/api/explain"
        async with aiohttp.ClientSession() as session, session.get(url, params=params) as response:
            assert response.status == 200, await response.text()
            assert (await response.json())["object"]["name"] == "kopf-example-1"

    await run_recorded(path, cluster, settings, look)
    text = read_all(path).decode()
    assert "fieldSelector" not in text
    assert "/selfsubjectreviews" not in text
    assert ("create", "selfsubjectreviews", 201) in cluster.counters
    result = await asyncio.to_thread(replay, path, registry=make_registry(asyncio.Event()))
    assert not result.divergences, str(result)


async def test_random_numbers_are_not_told_unless_asked_for(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    """Whoever has the file, could make the same numbers again: those of the application, and of the handlers."""
    original, path = random.random, tmp_path / "recording"
    seen = []

    async def look() -> None:
        seen.append(random.random)

    await run_recorded(path, cluster, kopf.OperatorSettings(), look)
    assert seen == [original]
    assert b'"seed"' not in read_all(path)
