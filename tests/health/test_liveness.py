from __future__ import annotations

import asyncio

import pytest

from kopf._health.liveness import Liveness
from kopf._settings.settings import HealthSettings, OperatorSettings


@pytest.mark.fastforward
async def test_silent_streams_are_stale_until_the_next_sign_of_life() -> None:
    liveness, settings = Liveness(), OperatorSettings()
    with liveness.watching("pods") as pods, liveness.watching("secrets") as secrets:
        await asyncio.sleep(299)
        secrets.beat()
        assert liveness.find_problems(settings) == []
        await asyncio.sleep(3)
        assert liveness.find_problems(settings) == ["The watch-stream for pods is stale, with nothing for 302 s."]
        pods.beat()
        assert liveness.find_problems(settings) == []


@pytest.mark.fastforward
async def test_nothing_is_expected_of_closed_streams() -> None:
    liveness = Liveness()
    with liveness.watching("pods"):
        await asyncio.sleep(1000)
    assert liveness.find_problems(OperatorSettings()) == []


@pytest.mark.fastforward
async def test_it_can_be_switched_off() -> None:
    liveness = Liveness()
    with liveness.watching("pods"):
        await asyncio.sleep(1000)
        assert liveness.find_problems(OperatorSettings(health=HealthSettings(stream_timeout=None))) == []


async def test_a_few_failures_are_tolerated() -> None:
    liveness, settings = Liveness(), OperatorSettings()
    for count in (1, 2):
        liveness.note_failure("watcher of pods", count, "boom")
        assert liveness.find_problems(settings) == []
    liveness.note_failure("watcher of pods", 3, "boom")
    text = "The watcher of pods has failed 3 times in a row"
    assert liveness.find_problems(settings) == [f"{text}: see the log of the operator."]
    assert liveness.find_problems(OperatorSettings(health=HealthSettings(show_errors=True))) == [f"{text}: boom"]
    liveness.note_recovery("watcher of pods")
    liveness.note_recovery("unknown")
    assert liveness.find_problems(settings) == []


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("stream_timeout", "inactivity_timeout", "expected"),
    [
        (300, 70, 300),
        (300, 600, 1200),
        (300, None, None),
        (None, 70, None),
        (10, 1, 10),
        (10, 70, 140),
    ],
)
async def test_streams_may_be_silent_until_they_are_reopened(
    stream_timeout: float | None,
    inactivity_timeout: float | None,
    expected: float | None,
) -> None:
    """Some servers send no bookmarks, so nothing can come until then."""
    settings = OperatorSettings()
    settings.health.stream_timeout = stream_timeout
    settings.watching.inactivity_timeout = inactivity_timeout
    liveness = Liveness()
    with liveness.watching("pods"):
        await asyncio.sleep(100_000 if expected is None else expected - 1)
        assert liveness.find_problems(settings) == []
        if expected is not None:
            await asyncio.sleep(2)
            assert liveness.find_problems(settings) != []
