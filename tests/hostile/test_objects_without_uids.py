"""Objects of aggregated APIs need not have uids: each of them is still one of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers, is_handled
from tests.behaviour.running import Calls, Journal, Logs, Operator
from tests.hostile.spoiling import SpoilingProxy, find_objects

MISSING = pytest.mark.parametrize("missing", [["uid"], ["uid", "resourceVersion"]], ids=["uids", "versions"])


@pytest.fixture
def missing() -> list[str]:
    return ["uid"]


@pytest.fixture(autouse=True)
def _proxy(proxy: SpoilingProxy, missing: list[str]) -> None:
    def drop(content: Any) -> None:
        for obj in find_objects(content):
            if (obj.get("kind") or "KopfExample") == "KopfExample" and "name" in obj.get("metadata", {}):
                for key in missing:
                    obj["metadata"].pop(key, None)

    proxy.rewrite = drop


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.update("kopfexamples", id="fn")
    @kopf.on.delete("kopfexamples", id="fn")
    async def fn(name: str, reason: str, memo: kopf.Memo, uid: str | None, **_: Any) -> str:
        assert not uid
        memo.setdefault("seen", []).append(name)
        calls.append((reason, name, list(memo.seen)))
        return reason


@MISSING
async def test_everyone_is_handled(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    await kex.create("old")
    await operator.start()
    await kex.create("new")
    for name in ("old", "new"):
        await kex.wait_handled(name)
        obj = await kex.change_and_wait(name, field="changed")
        assert obj["status"] == {"fn": "update"}
        assert get_finalizers(obj) == [FINALIZER]
        await kex.delete(name)
        await kex.wait_gone(name)
        assert [call for call in calls if call[1] == name] == [
            ("create", name, [name]),
            ("update", name, [name] * 2),
            ("delete", name, [name] * 3),
        ]
    assert not logs.get_messages(level=30)


async def test_daemons_and_indices(operator: Operator, kex: Objects) -> None:
    daemons: Journal[Any] = Journal()
    indexed: list[list[str]] = []

    @kopf.daemon("kopfexamples")
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        daemons.append(("started", name))
        await stopped.wait()
        daemons.append(("stopped", name))

    @kopf.index("kopfexamples")
    async def names(name: str, **_: Any) -> str:
        return name

    @kopf.on.create("kopfexamples")
    async def look(names: kopf.Index[Any, str], **_: Any) -> None:
        indexed.append(sorted(names.get(None, ())))

    await kex.create("one")
    await kex.create("two")
    await operator.start()
    await daemons.wait_length(2)
    for name in ("one", "two"):
        await kex.wait_handled(name)
    assert indexed == [["one", "two"]] * 2
    await kex.delete("one")
    await kex.wait_gone("one")
    await kex.create("three")
    await kex.wait_handled("three")
    assert indexed[2:] == [["three", "two"]]
    assert ("stopped", "one") in daemons
    assert ("stopped", "two") not in daemons


async def test_an_object_that_is_created_anew_while_the_previous_one_is_handled(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    going_on = asyncio.Event()

    @kopf.on.create("kopfexamples")
    async def slow(spec: kopf.Spec, **_: Any) -> None:
        calls.append(("slow", spec["field"]))
        await going_on.wait()

    await operator.start()
    await kex.create(spec={"field": "first"})
    await calls.wait(lambda items: ("slow", "first") in items)
    await kex.delete()
    await kex.release()
    await kex.wait_gone()
    await kex.create(spec={"field": "second"})
    going_on.set()
    await kex.wait(lambda obj: obj["spec"]["field"] == "second" and is_handled(obj))
    assert ("slow", "second") in calls
