from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping

import pytest

from kopf._handlers.attempts import Outcome
from kopf._handlers.handler_errors import PermanentError
from kopf._health.health import Prober, ProbeResults
from kopf._settings.settings import HealthSettings
from kopf._values.ids import HandlerId


class Probe:
    def __init__(self, *outcomes: Outcome, duration: float = 0) -> None:
        self.calls = 0
        self._outcomes = outcomes
        self._duration = duration

    async def __call__(self) -> Mapping[HandlerId, Outcome]:
        self.calls += 1
        await asyncio.sleep(self._duration)
        return {HandlerId(f"fn{i}"): outcome for i, outcome in enumerate(self._outcomes)}


@pytest.mark.fastforward
async def test_concurrent_requests_share_the_calls() -> None:
    probe = Probe(Outcome(final=True, result=1), duration=60)
    prober = Prober(probe, HealthSettings())
    impatient = asyncio.create_task(prober.get())
    others = [asyncio.create_task(prober.get()) for _ in range(10)]
    await asyncio.sleep(30)
    impatient.cancel()
    assert await asyncio.gather(*others) == [ProbeResults({"fn0": 1}, [])] * 10
    assert probe.calls == 1


async def test_failures_and_strange_results_are_problems() -> None:
    probe = Probe(
        Outcome(final=True, exception=ValueError("boom")),
        Outcome(final=True, exception=PermanentError("intended")),
        Outcome(final=True, result=object()),
        Outcome(final=True, result=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)),
    )
    results = await Prober(probe, HealthSettings()).get()
    assert results.values == {"fn3": "2026-01-02T00:00:00Z"}
    assert results.problems[:2] == [
        "The probe 'fn0' has failed: see the log of the operator.",
        "The probe 'fn1' has failed: intended",
    ]
    assert results.problems[2].startswith("The probe 'fn2' has returned a value with no JSON form: ")


@pytest.mark.parametrize(("error", "text"), [(ValueError("boom"), "boom"), (ValueError(), "ValueError")])
async def test_arbitrary_errors_are_shown_on_demand(error: Exception, text: str) -> None:
    prober = Prober(Probe(Outcome(final=True, exception=error)), HealthSettings(show_errors=True))
    assert (await prober.get()).problems == [f"The probe 'fn0' has failed: {text}"]
