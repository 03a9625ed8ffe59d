"""
Random lives of random objects under random operators: whatever happens, the promises are kept.

There are few examples by default; 2,000, other ones every time, in ``make random``. Their number can be set:

    KOPF_STATE_MACHINE_EXAMPLES=5000 python -m pytest tests/behaviour/test_state_machine.py --timeout 0
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.behaviour import invariants
from tests.behaviour.plans import ArbitraryError, Plan
from tests.behaviour.world import World, watching_controllers

EXAMPLES = int(os.environ.get("KOPF_STATE_MACHINE_EXAMPLES", "0"))
STEPS = 25
PATIENCE = 500.0
CALM = 100.0

names = st.sampled_from(["a", "b"])
values = st.integers(1, 4)
switches = st.booleans()
lags = st.sampled_from([0, 0.01, 0.5, 3])
plans = (
    st.lists(
        st.builds(
            Plan,
            kind=st.sampled_from(
                [
                    "change",
                    "create",
                    "update",
                    "parent",
                    "field",
                    "status",
                    "deep",
                    "resume",
                    "delete",
                    "optional-delete",
                    "event",
                    "daemon",
                    "quitter",
                    "timer",
                    "index",
                ]
            ),
            filter=st.sampled_from(["none", "none", "label", "annotation", "when"]),
            script=st.lists(st.sampled_from(["temporary", "arbitrary", "permanent", "ok"]), max_size=2).map(tuple),
            retries=st.sampled_from([None, None, 2]),
            is_async=st.sampled_from([True, True, False]),
            duration=st.sampled_from([0, 1, 10]),
            effect=st.sampled_from(
                ["none", "result", "status", "fns", "fns-spec", "spec", "label", "annotation", "leak"]
            ),
        ),
        min_size=1,
        max_size=5,
    )
    .map(
        lambda items: [
            Plan(**{**vars(plan), "number": number})
            for number, plan in enumerate(items)
            if (plan.kind, plan.effect) != ("parent", "leak")  # a parent and its sub-handlers share what they are given
        ]
    )
    .filter(bool)
)


class Errors(logging.Handler):
    """The failures of the framework itself."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        is_critical = record.levelno >= logging.CRITICAL
        if is_critical or (error is not None and not isinstance(error, ArbitraryError)):
            self.messages.append(f"{record.getMessage()} {error!r}")


WORLDS: list[World] = []
ERRORS = Errors()


class Machine(RuleBasedStateMachine):
    """What can happen to the objects and to the operator."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    @initialize(
        plans=plans,
        plural=st.sampled_from(["kopfexamples", "kopfstatusexamples"]),
        comparable=switches,
        peered=st.sampled_from([False, False, True]),
        lag=lags,
        seed=st.integers(0, 9),
    )
    def begin(self, plans: list[Plan], plural: str, comparable: bool, peered: bool, lag: float, seed: int) -> None:
        self.world = World(plans, plural=plural, comparable=comparable, peered=peered, lag=lag, seed=seed)
        WORLDS[:] = [self.world]
        ERRORS.messages.clear()
        self.world.run(self.world.simulation.restart())

    def step(self, coro: Any) -> None:
        try:
            self.world.run(coro)
        except BaseException:
            self.is_broken = True
            raise

    @rule(name=names, x=values, labelled=switches, annotated=switches)
    def create(self, name: str, x: int, labelled: bool, annotated: bool) -> None:
        labels = {"mark": "on"} if labelled else {}
        self.step(self.world.create(name, x, labels=labels, annotations={"mark": "yes"} if annotated else {}))

    @rule(name=names, x=values)
    def update(self, name: str, x: int) -> None:
        self.step(self.world.change(name, {"spec": {"x": x}}))

    @rule(name=names, mark=st.sampled_from(["on", None]))
    def relabel(self, name: str, mark: str | None) -> None:
        self.step(self.world.change(name, {"metadata": {"labels": {"mark": mark}}}))

    @rule(name=names, mark=st.sampled_from(["yes", None]))
    def annotate(self, name: str, mark: str | None) -> None:
        self.step(self.world.change(name, {"metadata": {"annotations": {"mark": mark}}}))

    @rule(name=names, value=st.sampled_from([1, 2, None]))
    def report(self, name: str, value: int | None) -> None:
        self.step(self.world.change(name, {"status": {"foreign": value}}, status=True))

    @rule(name=names, one=st.sampled_from([1, 2, None]), two=st.sampled_from([1, 2, None]))
    def report_deeply(self, name: str, one: int | None, two: int | None) -> None:
        self.step(self.world.change(name, {"status": {"deep": {"one": one, "two": two}}}, status=True))

    @rule(name=names)
    def hold(self, name: str) -> None:
        self.step(self.world.hold(name))

    @rule(name=names)
    def release(self, name: str) -> None:
        self.step(self.world.release(name))

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.step(self.world.delete(name))

    @rule(seconds=st.sampled_from([0, 0.001, 0.01, 0.5, 3, 4, 30, 100]))
    def wait(self, seconds: float) -> None:
        self.step(asyncio.sleep(seconds))

    @precondition(lambda self: self.world.simulation.is_running)
    @rule()
    def kill(self) -> None:
        self.step(self.world.simulation.crash())

    @precondition(lambda self: self.world.simulation.is_running)
    @rule()
    def stop(self) -> None:
        self.step(self.world.simulation.stop())

    @precondition(lambda self: not self.world.simulation.is_running)
    @rule()
    def start(self) -> None:
        self.step(self.world.simulation.restart())

    @precondition(lambda self: self.world.peering is not None)
    @rule(is_paused=switches)
    def pause(self, is_paused: bool) -> None:
        self.step(self.world.pause(is_paused))

    @rule(status=st.sampled_from([500, 429, 409, 503]), times=st.integers(1, 4))
    def refuse(self, status: int, times: int) -> None:
        self.world.cluster.faults.inject(status, method="PATCH", times=times)

    @rule(status=st.sampled_from([422, 403]))
    def refuse_all(self, status: int) -> None:
        self.world.refuse(status)

    @rule()
    def cure(self) -> None:
        self.world.cure()

    @rule(rate=st.sampled_from([0.2, 1]), times=st.integers(1, 4))
    def conflict(self, rate: float, times: int) -> None:
        self.world.cluster.faults.inject(409, guarded=True, rate=rate, times=times, latency=0.3)

    @rule(most=lags)
    def lag(self, most: float) -> None:
        self.world.lag(most)

    @rule(action=st.sampled_from(["disconnect", "lose-answer"]), times=st.integers(1, 2))
    def disconnect(self, action: Any, times: int) -> None:
        self.world.cluster.faults.inject(action=action, method="PATCH", times=times)

    @rule(clean=switches)
    def cut(self, clean: bool) -> None:
        self.world.cluster.faults.cut_watches(clean=clean)

    @rule(silent=switches)
    def silence(self, silent: bool) -> None:
        self.world.cluster.faults.silence_watches(silent)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                if not self.is_broken:
                    self.world.run(self.finish())
            finally:
                self.world.close()

    async def finish(self) -> None:
        """Let everything calm down, and check the promises; then remove everything, and check again."""
        world = self.world
        world.cluster.faults.silence_watches(False)
        world.cure()
        await world.pause(False)
        if not world.simulation.is_running:
            await world.simulation.restart()
        await self.calm_down(self.find_violations)
        for name in world.expected:
            await world.delete(name)
            await world.release(name)
        await self.calm_down(self.find_leftovers)
        await world.simulation.stop()
        assert not ERRORS.messages

    async def calm_down(self, check: Any) -> None:
        """Wait until there are no violations, and see if there are still none some time later."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while problems := await check():
            assert loop.time() < deadline, "\n".join(problems)
            await asyncio.sleep(20)
        await asyncio.sleep(CALM)
        problems = await check()
        assert not problems, "\n".join(problems)

    async def find_violations(self) -> list[str]:
        world, objects = self.world, await self.world.list()
        return [
            *invariants.find_unhandled(world, objects),
            *invariants.find_repetitions(world),
            *invariants.find_wrong_finalizers(world, objects),
            *invariants.find_touched(world, objects),
            *invariants.find_leaks(world),
            *invariants.find_wrong_background(world, objects, asyncio.get_running_loop().time()),
            *invariants.find_unnoticed(world, objects),
        ]

    async def find_leftovers(self) -> list[str]:
        objects = await self.world.list()
        leftovers = [f"{invariants.describe(obj)} still exists: {obj['metadata']}" for obj in objects]
        return [*leftovers, *invariants.find_repetitions(self.world), *invariants.find_remembered(self.world)]


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    logger = logging.getLogger("kopf")
    logger.addHandler(ERRORS)
    logger.propagate = False  # otherwise, the report of a failure has the logs of all examples
    with watching_controllers(WORLDS):
        yield
    logger.removeHandler(ERRORS)
    logger.propagate = True
    WORLDS.clear()


@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_random_lives() -> None:
    run_state_machine_as_test(
        Machine,
        settings=hypothesis.settings(
            max_examples=EXAMPLES or 15,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not EXAMPLES,
            phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
            suppress_health_check=list(hypothesis.HealthCheck),
            database=None,
        ),
    )
