"""Activities: the handlers of the operator's own life are retried until they are done, with no operator around."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import kopf
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.activities import Activities, ActivityError
from kopf._settings.settings import OperatorSettings
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity

pytestmark = pytest.mark.fastforward


class Life:
    """The activities of one operator, and the calls of its handlers."""

    def __init__(self) -> None:
        settings = OperatorSettings()
        self.registry = OperatorRegistry()
        self.calls: list[str] = []
        self._activities = Activities(settings, HandlerExecutor(settings.execution), memo="memo")

    def declare(self, id: str, *outcomes: Any, **options: Any) -> None:
        """Declare a startup handler that has these results or errors, attempt by attempt."""
        iterator = iter(outcomes)

        @kopf.on.startup(id=id, registry=self.registry, **options)
        async def fn(memo: Any, **_: Any) -> Any:
            assert memo == "memo"
            self.calls.append(id)
            outcome = next(iterator)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    async def run(self) -> Mapping[str, Any]:
        results = await self._activities.run(Activity.STARTUP, self.registry.get_activities(Activity.STARTUP))
        return {str(id): result for id, result in results.items()}


@pytest.fixture
async def life() -> Life:
    return Life()


async def test_they_are_called_one_after_another(life: Life) -> None:
    life.declare("a", 1)
    life.declare("b", None)
    life.declare("c", 3)
    assert await life.run() == {"a": 1, "c": 3}
    assert life.calls == ["a", "b", "c"]


async def test_they_are_retried_before_the_next_ones(life: Life) -> None:
    life.declare("a", kopf.TemporaryError("later", delay=100), ValueError("arbitrary"), 1, backoff=30)
    life.declare("b", 2)
    started = asyncio.get_running_loop().time()
    assert await life.run() == {"a": 1, "b": 2}
    assert 130 <= asyncio.get_running_loop().time() - started < 131
    assert life.calls == ["a", "a", "a", "b"]


@pytest.mark.parametrize("options", [{"retries": 2}, {"timeout": 50}, {"errors": kopf.ErrorsMode.PERMANENT}], ids=str)
async def test_all_are_called_if_one_of_them_fails(life: Life, options: dict[str, Any]) -> None:
    life.declare("a", *[ValueError("boo!")] * 3, **options)
    life.declare("b", 2)
    with pytest.raises(ActivityError, match="The startup has failed in 'a': ") as e:
        await life.run()
    assert life.calls[-1] == "b"
    assert e.value.outcomes[HandlerId("b")].result == 2


async def test_nothing_is_to_be_done(life: Life) -> None:
    assert await life.run() == {}
