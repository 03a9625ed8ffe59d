"""Objects that are too deep or too large to be decoded: they are skipped, and all others are handled."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, FINALIZER, Objects, get_finalizers
from tests.behaviour.peerings import PeeringObject, define_peering
from tests.behaviour.running import Calls, Logs, Operator
from tests.hostile.spoiling import LARGE, SpoilingProxy, custom, deep, deep_list
from tests.patience import PATIENCE

UNREADABLE = (
    "The object cannot be decoded: it (is nested too deeply|would take .* MiB of memory).*It is not handled until.*"
)
TOO_MUCH = [deep(20_000), deep_list(20_000), deep(100_000), custom(0)]
"""Python decodes about 900 levels until 3.12, and 9,900 or more since then; the last one is the large text."""


@pytest.fixture(autouse=True)
def _handlers(proxy: SpoilingProxy, calls: Calls) -> None:
    proxy.texts.append(LARGE)

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def fn(name: str, reason: str, **_: Any) -> None:
        calls.append((reason, name))


@pytest.mark.parametrize("mark", TOO_MUCH)
async def test_others_are_handled(operator: Operator, kex: Objects, logs: Logs, calls: Calls, mark: str) -> None:
    await kex.create("deep1", spec={"a": mark})
    await kex.create("flat1")
    await operator.start()
    await kex.create("deep2", spec={"a": mark})
    await kex.create("flat2")
    await kex.wait_handled("flat1")
    await kex.wait_handled("flat2")
    await logs.wait(UNREADABLE, times=2)
    await kex.merge({"spec": {"b": 1}}, "deep1")
    await kex.change_and_wait("flat1", b=1)
    assert sorted(calls) == [("create", "flat1"), ("create", "flat2"), ("update", "flat1")]
    assert len(logs.find(UNREADABLE)) == 2  # not for every event
    assert len(logs.get_messages(level=logging.WARNING)) == 2


@pytest.mark.parametrize("mark", [deep(20_000), custom(0)])
async def test_it_is_handled_once_it_is_readable(operator: Operator, kex: Objects, logs: Logs, mark: str) -> None:
    await kex.create(spec={"a": mark})
    await operator.start()
    await logs.wait(UNREADABLE)
    await kex.change_and_wait(a="flat")


@pytest.mark.parametrize("mark", TOO_MUCH)
async def test_it_can_be_deleted(operator: Operator, kex: Objects, logs: Logs, calls: Calls, mark: str) -> None:
    await operator.start()
    await kex.create()
    await kex.wait_handled()
    await kex.merge({"spec": {"a": mark}})
    await logs.wait(UNREADABLE)
    await kex.delete()
    await kex.wait_gone()
    assert len(logs.find(".*deleted with no handlers called.*")) == 1
    assert calls == [("create", "obj")]


async def test_there_is_a_kubernetes_event(operator: Operator, kex: Objects, api: API, logs: Logs) -> None:
    operator.set("posting.enabled", True)
    await operator.start()
    await kex.create(spec={"a": deep(20_000)})
    await logs.wait(UNREADABLE)
    async with asyncio.timeout(PATIENCE):
        while not (events := await api.list_events()):
            await asyncio.sleep(0.01)
    assert [event["type"] for event in events] == ["Warning"]
    assert "too deeply" in events[0]["message"]


async def test_raw_events_and_indices_and_daemons(operator: Operator, kex: Objects, logs: Logs) -> None:
    types: list[tuple[str, str | None]] = []
    daemons: list[str] = []

    @kopf.on.event("kopfexamples")
    async def spy(name: str, type: str | None, spec: kopf.Spec, **_: Any) -> None:
        types.append((name, type))

    @kopf.index("kopfexamples")
    async def index(name: str, spec: kopf.Spec, **_: Any) -> dict[str, Any]:
        return {name: spec.get("a")}

    @kopf.daemon("kopfexamples")
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        daemons.append(name)
        await stopped.wait()

    await operator.start()
    await kex.create("obj", spec={"a": "1"})
    await kex.wait_handled("obj")
    await kex.merge({"spec": {"a": deep(20_000)}}, "obj")
    await logs.wait(UNREADABLE)
    await kex.delete("obj")
    await kex.wait_gone("obj")
    await kex.create("other")
    await kex.wait_handled("other")
    assert ("obj", "ADDED") in types
    assert ("obj", "DELETED") in types
    assert daemons == ["obj", "other"]


LEVELS = [400, 500, 700, 850, 900, 940, 950, 955, 960, 970, 980, 990, 1100, 5000, 9000, 9900, 9950, 9990]


async def test_those_that_are_nearly_too_deep_are_handled_or_skipped_but_always_deletable(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    await operator.start()
    for levels in LEVELS:
        name, other = f"deep-{levels}", f"flat-{levels}"
        await kex.create(name, spec={"a": deep(levels)})
        await kex.create(other)
        await kex.wait_handled(other)
        await kex.merge({"metadata": {"finalizers": [FINALIZER]}}, name)
        await kex.wait(get_finalizers, name)
        await kex.delete(name)
        await kex.wait_gone(name)
        if levels <= 700:
            assert ("create", name) in calls
            assert ("delete", name) in calls


# ------------------------------------------------------------------ peering


@pytest.mark.parametrize(
    "record",
    [
        {"a": deep(20_000)},
        {"lastseen": deep_list(20_000)},
        deep(20_000),
        deep_list(50_000),
        {"message": deep(900), "lastseen": "2020-01-01T00:00:00"},
        deep_list(900),
        deep(940),
        {"lastseen": "x" * 100_000},
        {"lifetime": 1e308, "lastseen": "2020-01-01T00:00:00"},
        {"lifetime": "nan", "lastseen": "2020-01-01T00:00:00"},
    ],
)
async def test_unreadable_records_of_peers_are_ignored(
    operator: Operator,
    proxy: SpoilingProxy,
    api: API,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    record: Any,
) -> None:
    define_peering(operator.cluster)
    peering = PeeringObject(api)
    await peering.create(status={"bad" * 10_000: record})
    await operator.start(peering_name="default", standalone=False)
    await kex.create("flat")
    await kex.wait_handled("flat")
    assert operator.is_running
    assert sum(map(len, logs.get_messages(level=logging.INFO))) < 10_000
