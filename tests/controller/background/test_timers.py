"""What timers tell of themselves, in all event loops."""

from __future__ import annotations

import asyncio
import types
from typing import Any, cast

import pytest

import kopf
from kopf._controller.background.runs import ObjectBackground
from kopf._controller.background.stop_signals import DaemonStoppingReason
from kopf._controller.background.timers import TimerRun
from kopf._handlers.handlers import TimerHandler
from kopf._handlers.registry import OperatorRegistry

pytestmark = pytest.mark.loops


@pytest.mark.parametrize("delay", [0.0, 0.0002, 0.0108, 1000.0])
@pytest.mark.parametrize("idle", [None, 500.0])
async def test_the_next_call_is_told(delay: float, idle: float | None) -> None:
    registry = OperatorRegistry()
    kopf.timer("kopfexamples", interval=1, idle=idle, registry=registry)(lambda **_: None)
    [handler] = cast("list[TimerHandler]", registry.resources)
    loop = asyncio.get_running_loop()
    before = loop.time()
    background: Any = types.SimpleNamespace(
        changed_at=before, runtime=types.SimpleNamespace(context=None), exit=lambda: None
    )
    run = TimerRun(cast(ObjectBackground, background), handler)
    run.start(delay)
    planned = run.next_call
    assert planned is not None
    expected = max(delay, idle or 0)
    assert before + expected <= planned + 1e-6
    assert planned <= loop.time() + expected + 1e-6
    run.stop(DaemonStoppingReason.OPERATOR_EXITING)
