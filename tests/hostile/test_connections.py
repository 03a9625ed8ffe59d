r"""
Connections to the ports of the operator: idle ones, half-open ones, too many of them.

The full size::
    KOPF_HOSTILE_DURATION=300 KOPF_HOSTILE_IDLE=5000 KOPF_HOSTILE_HALF=1000 \
    python -m pytest --log-cli-level=INFO tests/hostile/test_connections.py

It wants a machine of its own: beside other busy programs, it is the scheduler that is measured, even by a client that
has its connection already. If there are such, run it in its own session with a priority (``/proc/self/autogroup``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import pathlib
import time

import pytest

from tests.admission.reviewing import make_review
from tests.hostile.oracle import get_promptness
from tests.hostile.sieges import (
    HALF_HEADER,
    HALF_HELLO,
    HALF_REQUEST,
    Victim,
    attacking,
    get_size,
    living,
    measuring,
)
from tests.patience import wait_until

logger = logging.getLogger(__name__)

DURATION = get_size("DURATION", 4)
IDLE = int(get_size("IDLE", 300))
HALF = int(get_size("HALF", 100))
FILES = int(get_size("FILES", 256 if IDLE < 1000 else 1024))


IS_SMALL = IDLE < 1000
"""If so, it is one of many tests on a busy machine: an honest client can be slower than the attackers."""


@pytest.mark.timeout(DURATION + 300)
async def test_honest_clients_are_answered_during_a_siege(tmp_path: pathlib.Path) -> None:
    async with living(tmp_path, files=FILES) as victim:
        health = f"http://127.0.0.1:{victim.health_port}/healthz"
        webhook = f"https://127.0.0.1:{victim.webhook_port}/check"
        review, authority = json.dumps(make_review()).encode(), str(tmp_path / "ca.pem")
        with (
            measuring(health, tmp_path / "probes", "new", pace=0.2) as probes,
            measuring(webhook, tmp_path / "reviews", "new", authority, body=review, pace=0.2) as reviews,
            measuring(webhook, tmp_path / "kept", "kept", authority, body=review, pace=0.2) as kept,
        ):
            await wait_until(lambda: all(len(answers.delays) >= 3 for answers in (probes, reviews, kept)))
            files, memory, lines = victim.files, victim.memory, victim.lines
            starvation = victim.starvation
            peak, handled = await besiege(victim)
            await wait_until(lambda: victim.files <= files + 5)
        limit = get_promptness() + (victim.starvation - starvation if IS_SMALL else 0)
        grown, said = victim.memory - memory, victim.lines - lines
        logger.info("files: %s, %s at the peak, %s after", files, peak, victim.files)
        logger.info("memory: %.0f MB + %.0f MB; log lines: %s", memory, grown, said)
        logger.info("another object is handled in %.3fs", handled)
        for title, answers in (("probes", probes), ("reviews", reviews), ("kept", kept)):
            logger.info("%s: %s", title, answers)
        for answers in (probes, reviews, kept):
            assert answers.count_late(limit) <= (len(answers.delays) / 5 if IS_SMALL else 0), str(answers)
        assert handled < get_promptness()
        assert peak < FILES
        assert grown < 30 + IDLE / 100  # it does not depend on how long it lasts
        assert said < 10 + DURATION / 2


async def besiege(victim: Victim) -> tuple[int, float]:
    """Attack for a while; tell how many files were open at most, and how long another object took, in seconds."""
    processes = 1 if IS_SMALL else 2
    peak = 0
    with (
        attacking(victim.health_port, IDLE, processes=processes),
        attacking(victim.health_port, HALF // 2, HALF_HEADER),
        attacking(victim.health_port, HALF // 2, HALF_REQUEST),
        attacking(victim.webhook_port, IDLE, processes=processes),
        attacking(victim.webhook_port, HALF, HALF_HELLO),
    ):
        deadline = time.monotonic() + DURATION
        while time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            peak = max(peak, victim.files)
        return peak, await victim.handle("second")
