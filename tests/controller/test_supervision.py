from __future__ import annotations

import asyncio
import itertools

import pytest

from kopf._controller.supervision import keep_running
from kopf._health.liveness import Liveness
from kopf._settings.settings import OperatorSettings


class Routine:
    """Fails as many times as it is told to, then works."""

    def __init__(self, *plan: float | Exception) -> None:
        self._plan = [*plan]
        self.starts: list[float] = []

    async def __call__(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        while self._plan:
            step = self._plan.pop(0)
            if isinstance(step, Exception):
                raise step
            await asyncio.sleep(step)
        await asyncio.Event().wait()


async def run(routine: Routine, liveness: Liveness) -> None:
    await keep_running("thing", routine, fatal=(LookupError,), liveness=liveness)


@pytest.mark.fastforward
async def test_failures_are_restarted_and_reported_when_there_are_too_many(caplog: pytest.LogCaptureFixture) -> None:
    liveness, settings = Liveness(), OperatorSettings()
    errors = [ValueError(f"boom{i}") for i in range(4)]
    task = asyncio.create_task(run(routine := Routine(*errors), liveness))
    seen: set[str] = set()
    while len(routine.starts) < 5:
        seen.update(liveness.find_problems(settings))
        await asyncio.sleep(0.1)
    assert sorted(seen) == [
        f"The thing has failed {count} times in a row: see the log of the operator." for count in (3, 4)
    ]
    delays = [round(b - a) for a, b in zip(routine.starts, routine.starts[1:], strict=False)]
    assert delays == [1, 2, 5, 10]
    assert liveness.find_problems(settings)
    await asyncio.sleep(61)
    assert not liveness.find_problems(settings)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.fastforward
async def test_it_gives_up_when_it_never_works(caplog: pytest.LogCaptureFixture) -> None:
    liveness = Liveness()
    with pytest.raises(ValueError, match="boom5"):
        await run(Routine(*(ValueError(f"boom{i}") for i in range(6))), liveness)
    assert liveness.find_problems(OperatorSettings()) == []


@pytest.mark.fastforward
async def test_what_is_not_vital_is_restarted_forever(caplog: pytest.LogCaptureFixture) -> None:
    liveness, routine = Liveness(), Routine(*(ValueError(f"boom{i}") for i in range(9)))
    task = asyncio.create_task(keep_running("thing", routine, fatal=(LookupError,), liveness=liveness, is_vital=False))
    async with asyncio.timeout(1000):
        while len(routine.starts) < 10:
            await asyncio.sleep(1)
    assert [round(b - a) for a, b in itertools.pairwise(routine.starts)] == [1, 2, 5, 10, 30, 30, 30, 30, 30]
    assert liveness.find_problems(OperatorSettings())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.fastforward
async def test_failures_after_a_long_work_are_the_first_ones() -> None:
    liveness = Liveness()
    plan = [item for i in range(10) for item in (100.0, ValueError(f"boom{i}"))]
    task = asyncio.create_task(run(routine := Routine(*plan), liveness))
    while len(routine.starts) < 11:
        assert liveness.find_problems(OperatorSettings()) == []
        await asyncio.sleep(10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_fatal_errors_go_through() -> None:
    with pytest.raises(KeyError):
        await run(Routine(KeyError("x")), Liveness())


@pytest.mark.fastforward
async def test_unexpected_ends_are_failures(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[float] = []

    async def end() -> None:
        starts.append(asyncio.get_running_loop().time())

    with pytest.raises(RuntimeError, match="it has ended, while it must run"):
        await keep_running("thing", end, fatal=(LookupError,), liveness=Liveness())
    assert [round(b - a) for a, b in itertools.pairwise(starts)] == [1, 2, 5, 10, 30]
    assert "The thing has failed, and will be restarted in 1 seconds: it has ended" in caplog.text
