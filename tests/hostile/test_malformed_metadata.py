"""
Objects with malformed metadata, as aggregated APIs can have them: they are skipped, and all others are handled.

They are told of once each if it is known which object it is, and once for the whole resource if it is not.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, FINALIZER, Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.hostile.spoiling import SpoilingProxy, deep, find_objects
from tests.patience import PATIENCE

KNOWN: list[dict[str, Any]] = [
    {"labels": []},
    {"labels": {"a": 1}},
    {"annotations": "str"},
    {"annotations": {"a": None}},
    {"finalizers": {}},
    {"resourceVersion": 5},
    {"uid": 5},
    {"generation": "x"},
    {"deletionTimestamp": {}},
    {"creationTimestamp": [[]]},
    {"uid": "a {b c"},
    {"uid": " "},
    {"resourceVersion": "1 {2"},
    {"labels": 5, "annotations": 5, "finalizers": 5, "uid": [], "resourceVersion": {}, "generation": []},
]
UNKNOWN: list[Any] = [
    "str",
    None,
    [],
    5,
    {},
    {"name": ""},
    {"name": 5},
    {"name": None, "namespace": "default"},
    {"name": "bad1"},
    {"name": "x" * 1025, "namespace": "default"},
    {"name": "bad1", "namespace": ""},
    {"name": "bad1", "namespace": 5},
    {"name": "..", "namespace": "default"},
    {"name": ".", "namespace": "default"},
    {"name": "bad1", "namespace": ".."},
]
SKIPPED = ".*kopfexamples.*is skipped, because it has no proper metadata.*"
UNREADABLE = "The object cannot be decoded: its metadata are malformed.*It is not handled until.*"


class Spoiler:
    """Spoils the metadata of the objects with such names."""

    def __init__(self) -> None:
        self.metadata: Any = {}
        self.names: tuple[str, ...] = ("bad1", "bad2")

    def __call__(self, content: Any) -> None:
        for obj in find_objects(content):
            if isinstance(obj.get("metadata"), dict) and obj["metadata"].get("name") in self.names:
                is_partial = isinstance(self.metadata, dict) and self.metadata and "name" not in self.metadata
                obj["metadata"] = {**obj["metadata"], **self.metadata} if is_partial else self.metadata


@pytest.fixture(autouse=True)
def spoiler(proxy: SpoilingProxy) -> Spoiler:
    """What is wrong with the objects."""
    proxy.rewrite = spoiler = Spoiler()
    return spoiler


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def fn(name: str, reason: str, **_: Any) -> None:
        calls.append((reason, name))

    @kopf.on.event("kopfexamples")
    async def event(name: str, **_: Any) -> None:
        pass

    @kopf.index("kopfexamples")
    async def names(name: str, **_: Any) -> str:
        return name


async def _check(operator: Operator, kex: Objects, calls: Calls) -> None:
    """In the first listing, in the stream, and in a listing anew, the others are handled."""
    await kex.create("bad1")
    await kex.create("flat1")
    await operator.start()
    await kex.create("bad2")
    await kex.create("flat2")
    await kex.wait_handled("flat1")
    await kex.wait_handled("flat2")
    await kex.merge({"spec": {"b": 1}}, "bad1")
    listings = operator.cluster.counters["list", "kopfexamples", 200]
    await kex.create("expiring")
    await kex.wait_handled("expiring")
    if listings:
        assert operator.cluster.counters["list", "kopfexamples", 200] > listings
    assert operator.is_running
    assert sorted(calls) == [("create", "expiring"), ("create", "flat1"), ("create", "flat2")]


@pytest.mark.parametrize(("metadata", "streaming"), [*((item, False) for item in KNOWN), (KNOWN[-1], True)], ids=str)
async def test_known_objects(
    operator: Operator,
    spoiler: Spoiler,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    metadata: Any,
    streaming: bool,
) -> None:
    operator.set("watching.initial_streaming", streaming)
    spoiler.metadata = metadata
    await _check(operator, kex, calls)
    await logs.wait(UNREADABLE, times=2)
    assert len(logs.find(UNREADABLE)) == 2
    assert len(logs.get_messages(level=logging.WARNING)) == 2


@pytest.mark.parametrize(("metadata", "streaming"), [*((item, False) for item in UNKNOWN), ("str", True)], ids=str)
async def test_unknown_objects(
    operator: Operator,
    spoiler: Spoiler,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    metadata: Any,
    streaming: bool,
) -> None:
    operator.set("watching.initial_streaming", streaming)
    spoiler.metadata = metadata
    await _check(operator, kex, calls)
    assert len(logs.find(SKIPPED)) == 1
    assert len(logs.get_messages(level=logging.WARNING)) == 1


@pytest.mark.parametrize("levels", [1, 20_000])
async def test_things_that_are_no_objects(
    operator: Operator,
    proxy: SpoilingProxy,
    kex: Objects,
    logs: Logs,
    levels: int,
) -> None:
    """If something is too deep to be split by the decoder, the list is split in another way."""

    def rewrite(content: Any) -> None:
        if content.get("kind") == "KopfExampleList":
            content["items"] += [None, 5, 0, "str", True, [], [0], [[]], {}, {"kind": "KopfExample"}, deep(levels)]

    proxy.rewrite = rewrite
    await kex.create("flat")
    await operator.start()
    await kex.wait_handled("flat")
    assert len(logs.find(SKIPPED)) == 1


async def test_it_is_handled_once_the_metadata_are_proper(
    operator: Operator,
    spoiler: Spoiler,
    kex: Objects,
    logs: Logs,
) -> None:
    spoiler.metadata = {"labels": []}
    await operator.start()
    await kex.create("bad1")
    await logs.wait(UNREADABLE)
    spoiler.metadata = {"generation": 1}
    await kex.change_and_wait("bad1", field="new")


async def test_its_deletion_is_not_blocked(
    operator: Operator,
    spoiler: Spoiler,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    spoiler.metadata = {"generation": 1}
    await operator.start()
    obj = await kex.create("bad1")
    await kex.wait_handled("bad1")
    spoiler.metadata = {"labels": []}
    await kex.merge({"spec": {"field": "new"}}, "bad1")
    await logs.wait(UNREADABLE)
    assert FINALIZER in (await kex.get("bad1"))["metadata"]["finalizers"]
    await kex.delete("bad1")
    await kex.wait_gone("bad1", uid=obj["metadata"]["uid"])
    assert len(logs.find(".*deleted with no handlers called.*")) == 1
    assert calls == [("create", "bad1")]


async def test_there_is_a_kubernetes_event(
    operator: Operator,
    spoiler: Spoiler,
    kex: Objects,
    api: API,
    logs: Logs,
) -> None:
    operator.set("posting.enabled", True)
    spoiler.metadata = {"labels": []}
    await operator.start()
    await kex.create("bad1")
    await logs.wait(UNREADABLE)
    async with asyncio.timeout(PATIENCE):
        while not (events := await api.list_events()):
            await asyncio.sleep(0.01)
    assert [event["type"] for event in events] == ["Warning"]
    assert "metadata are malformed" in events[0]["message"]
