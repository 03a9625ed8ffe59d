"""Crafted annotations: whatever is put in place of the state of the operator, the object and others are handled."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import LAST_HANDLED, PREFIX, Obj, Objects, get_progress, is_handled
from tests.behaviour.running import Calls, Logs, Operator
from tests.hostile.inputs import COUNT, get_crafted_texts
from tests.patience import PATIENCE

ESSENCES = [
    "[" * 3000,
    "[" * 3000 + "]" * 3000,
    '{"a":' * 1100 + "1" + "}" * 1100,
    "5",
    "null",
    '"x"',
    "[]",
    "\ud7ff",
    "",
    '{"metadata": "str"}',
    '{"metadata": {"annotations": 5}}',
    '{"metadata": {"labels": [1]}}',
    '{"metadata": {"annotations": [1]}}',
    '{"metadata": [1]}',
    '{"metadata": null, "spec": 5}',
    '{"spec": {"field": [1, {"a": null}]}}',
    '{"spec": "\\ud800"}',
]
RECORDS = [
    *ESSENCES[:9],
    '{"started": 5, "stopped": {}, "delayed": [], "retries": "x", "success": "yes", "failure": 1, "subrefs": 5}',
    '{"subrefs": [1, {}, null, "../..", "\\u0000", ""], "purpose": "update"}',
    '{"started": "9999-99-99"}',
    '{"started": "0001-01-01T00:00:00+14:00", "retries": true, "purpose": ["update"], "digest": {}}',
    '{"success": {"a": 1}, "failure": "true", "message": {"b": []}, "purpose": {}}',
]


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.update("kopfexamples", id="fn")
    @kopf.on.resume("kopfexamples", id="fn")
    @kopf.on.delete("kopfexamples", id="fn")
    async def fn(name: str, reason: str, **_: Any) -> None:
        calls.append((reason, name))


def _is_settled(obj: Obj) -> bool:
    try:
        return is_handled(obj)
    except (ValueError, RecursionError, AttributeError):
        return False  # what was crafted is still there


async def _check(operator: Operator, kex: Objects, logs: Logs, crafted: dict[str, str]) -> None:
    """The object and another one are handled, and both can be deleted; nothing is said too often."""
    await kex.create("crafted", annotations=crafted)
    await kex.create("other")
    await operator.start()
    await kex.wait_handled("other")
    await kex.wait(_is_settled, "crafted")
    await kex.merge({"metadata": {"annotations": crafted}, "spec": {"x": 1}}, "crafted")
    await kex.wait(lambda obj: "x" in obj["spec"] and _is_settled(obj), "crafted")
    await kex.merge({"metadata": {"annotations": crafted}}, "crafted")
    await kex.delete("crafted")
    await kex.wait_gone("crafted")
    await kex.delete("other")
    await kex.wait_gone("other")
    assert len(logs.get_messages(level=logging.WARNING)) <= 5
    assert sum(map(len, logs.get_messages(level=logging.WARNING))) < 10_000


@pytest.mark.parametrize("text", ESSENCES, ids=lambda text: repr(text[:40]))
async def test_last_handled_configurations(operator: Operator, kex: Objects, logs: Logs, text: str) -> None:
    await _check(operator, kex, logs, {LAST_HANDLED: text})


@pytest.mark.parametrize("text", RECORDS, ids=lambda text: repr(text[:40]))
async def test_progress_records(operator: Operator, kex: Objects, logs: Logs, text: str) -> None:
    await _check(operator, kex, logs, {f"{PREFIX}/fn": text})


async def test_malformed_ones_are_warned_of_once(operator: Operator, kex: Objects, logs: Logs) -> None:
    await kex.create(annotations={LAST_HANDLED: '{"metadata": "str"}', f"{PREFIX}/fn": "[]"})
    await operator.start()
    await kex.wait_handled()
    assert len(logs.find(".*treated as never handled.*")) == 1
    assert len(logs.find(".*the handler starts anew.*")) == 1
    assert not get_progress(await kex.get())


@pytest.mark.timeout(300 + COUNT / 10)
async def test_generated_annotations(operator: Operator, kex: Objects, logs: Logs) -> None:
    """All at once, and one more object after them."""
    crafted = get_crafted_texts()
    await operator.start()
    for number, text in enumerate(crafted):
        await kex.create(f"crafted-{number}", annotations={LAST_HANDLED: text, f"{PREFIX}/fn": text})
    await kex.create("other")
    async with asyncio.timeout(PATIENCE + len(crafted) / 20):
        await kex.wait_handled("other")
        for number in range(len(crafted)):
            while not _is_settled(await kex.get(f"crafted-{number}")):
                await asyncio.sleep(0.1)
    assert len(logs.get_messages(level=logging.WARNING)) <= 2 * len(crafted)
