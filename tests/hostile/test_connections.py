r"""
Connections to the ports of the operator: idle ones, half-open ones, too many of them.

The full size::
    KOPF_HOSTILE_DURATION=300 KOPF_HOSTILE_IDLE=5000 KOPF_HOSTILE_HALF=1000 \
    python -m pytest --log-cli-level=INFO tests/hostile/test_connections.py
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import time

import pytest

from tests.hostile.sieges import (
    HALF_HEADER,
    HALF_HELLO,
    HALF_REQUEST,
    attacking,
    get_size,
    living,
    measuring,
    wait_until,
)

logger = logging.getLogger(__name__)

DURATION = get_size("DURATION", 4)
IDLE = int(get_size("IDLE", 300))
HALF = int(get_size("HALF", 100))
FILES = int(get_size("FILES", 256 if IDLE < 1000 else 1024))
PROCESSES = 1 if IDLE < 1000 else 2


@pytest.mark.timeout(DURATION + 120)
async def test_honest_clients_are_answered_during_a_siege(tmp_path: pathlib.Path) -> None:
    async with living(tmp_path, files=FILES) as victim, contextlib.AsyncExitStack() as clients:
        probes = await clients.enter_async_context(measuring(victim.probe, is_kept=False, pace=0.2))
        reviews = await clients.enter_async_context(measuring(victim.review, is_kept=False, pace=0.2))
        kept = await clients.enter_async_context(measuring(victim.review, is_kept=True, pace=0.2))
        await wait_until(lambda: all(len(answers.delays) >= 3 for answers in (probes, reviews, kept)))
        files, memory, lines = victim.files, victim.memory, victim.lines
        peak = 0
        with (
            attacking(victim.health_port, IDLE, processes=PROCESSES),
            attacking(victim.health_port, HALF // 2, HALF_HEADER),
            attacking(victim.health_port, HALF // 2, HALF_REQUEST),
            attacking(victim.webhook_port, IDLE, processes=PROCESSES),
            attacking(victim.webhook_port, HALF, HALF_HELLO),
        ):
            deadline = time.monotonic() + DURATION
            while time.monotonic() < deadline:
                await asyncio.sleep(0.2)
                peak = max(peak, victim.files)
            handled = await victim.handle("second")
        await wait_until(lambda: victim.files <= files + 5)
        grown, said = victim.memory - memory, victim.lines - lines
        logger.info("files: %s, %s at the peak, %s after", files, peak, victim.files)
        logger.info("memory: %.0f MB + %.0f MB; log lines: %s", memory, grown, said)
        logger.info("another object is handled in %.3fs", handled)
        for title, answers in (("probes", probes), ("reviews", reviews), ("kept", kept)):
            logger.info("%s: %s", title, answers)
        for answers in (probes, reviews, kept):
            assert not answers.problems
            assert max(answers.delays) < 1
        assert handled < 1
        assert peak < FILES
        assert grown < 30 + IDLE / 100  # it does not depend on how long it lasts
        assert said < 10 + DURATION / 2
