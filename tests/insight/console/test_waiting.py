"""What waits to be taken into the history: it is small, whatever the objects are."""

from __future__ import annotations

import tracemalloc

import pytest
from aiohttp import web

from kopf._controller.observer import Observers
from kopf._insight.backlog import MAX_NOTES, MAX_WEIGHT, Backlog
from kopf._insight.console.console import Console
from kopf._insight.endpoint.console_server import AnswerError, Routes
from kopf._insight.explaining.explanation import Explanation
from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

KEX = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)


async def explain_nothing(request: web.BaseRequest) -> Explanation:
    raise AnswerError("It is not asked for here.")


def make(number: int, size: int) -> KubeObject:
    metadata = {"name": f"obj-{number}", "namespace": "default", "uid": f"uid-{number}", "resourceVersion": str(number)}
    return KubeObject.from_json(codec.encode({"metadata": metadata, "status": {"text": "x" * size}}))


@pytest.mark.parametrize("size", [100, 15_000, 300_000])
async def test_waiting_notes_hold_little(size: int) -> None:
    observers = Observers()
    console = Console(observers, Backlog(observers), Routes(), explain_nothing)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(MAX_NOTES // 2 - 1):
            obj, fresh = make(number, size), make(number, size)
            observers.object_seen(KEX, obj.head.key, "MODIFIED", obj)
            observers.object_patched(KEX, obj, fresh, "status", {"status": {"text": "y" * size}})
            del obj, fresh
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < MAX_NOTES * 3000 + 2 * MAX_WEIGHT
    record = console.history.find(KEX, "uid-0") or console.history.watch()[0]
    [patch] = [entry for entry in console.history.get_timeline(record.id) or () if entry[2] == "patch"]
    assert "yyyy" in patch[5][0]
