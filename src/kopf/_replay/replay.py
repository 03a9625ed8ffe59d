"""
A replay: it runs the handlers again as recorded, in the recorded time, as fast as possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import pathlib
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from kopf._controller.instruments import Instruments
from kopf._replay.comparison import Divergence, describe
from kopf._replay.recorded_run import RecordedRun
from kopf._replay.replaying_instruments import Replayer
from kopf._replay.schedule import Schedule
from kopf._virtual_time.journal import Journal, SimulatedLogs
from kopf._virtual_time.patience import SimulationError
from kopf._virtual_time.process_patches import virtual_process
from kopf._virtual_time.simulated_clock import SimulatedClock
from kopf._virtual_time.threaded_loop import thread_owner
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop, is_in_loop

_NOWHERE = "{apiVersion: v1, kind: Config}\n"

Operate = Callable[[Instruments], Coroutine[Any, Any, None]]
"""Runs the operator with these instruments."""


@dataclasses.dataclass(kw_only=True)
class Replay:
    """The result of a replay: true if nothing differs. As a text, it describes the differences."""

    divergences: list[Divergence]
    """The differences from the recording, in the order of time."""
    journal: Journal
    """The calls of handlers in the replay."""
    recorded_journal: Journal
    """The calls of handlers in the recording."""
    logs: SimulatedLogs
    """The logs of the replay."""
    duration: float
    """The duration of the recording, in seconds."""
    requests: int
    """The number of recorded requests."""
    is_cut: bool
    """Whether the end of the recording is cut: the operator was killed, or still runs."""
    checkpoint: float | None
    """The actual beginning of the recording, in seconds, if its first part was dropped because of its size."""

    def __bool__(self) -> bool:
        return not self.divergences

    def __str__(self) -> str:
        return "\n".join(self._describe())

    def _describe(self) -> Iterator[str]:
        yield f"{self.duration:.1f} seconds, {len(self.recorded_journal)} calls of handlers, {self.requests} requests."
        if self.checkpoint is not None:
            yield (
                f"The first {self.checkpoint:.1f} seconds were dropped, because the recording was too large. "
                "The replay begins then, as after a restart of the operator."
            )
        if self.is_cut:
            yield "The end of the recording is missing: the operator was killed, or still runs. The replay ends there."
        if not self.divergences:
            yield "The operator behaves as recorded."
            return
        yield f"The operator diverges from the recording {len(self.divergences)} times:"
        yield from describe(self.divergences)


def check_loop() -> None:
    """Raise :class:`SimulationError` if there is an event loop already, as in coroutines."""
    if is_in_loop():
        raise SimulationError("A replay has its own time: call it in a regular function, not in a coroutine.")


def replay_run(run: RecordedRun, operate: Operate, *, patience: float) -> Replay:
    """
    Replay a recording in a new event loop; ``patience`` is the limit for a handler, in seconds of real time.

    Raises :class:`SimulationError` if a handler is stuck.
    """
    loop = VirtualTimeLoop(patience=patience)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_ReplayRun(run, operate).perform(loop))


class _ReplayRun:
    """The operator in the event loop of the replay."""

    def __init__(self, run: RecordedRun, operate: Operate) -> None:
        self._run = run
        self._operate = operate
        self._problem: SimulationError | None = None
        self._operator: asyncio.Task[None] | None = None

    async def perform(self, loop: VirtualTimeLoop) -> Replay:
        run, checkpoint = self._run, self._run.checkpoint
        schedule = Schedule(run.entries, loop, 0.0 if checkpoint is None else checkpoint.time, self._stop)
        replayer, logs = Replayer(run, schedule), SimulatedLogs(lambda: schedule.now)
        with contextlib.ExitStack() as stack:
            self._enter_time(stack, loop, schedule)
            stack.enter_context(replayer.randomness.replacing_functions())
            stack.enter_context(logs.taking())
            await self._run_operator(replayer)
        if self._problem is not None:
            raise self._problem
        return Replay(
            divergences=sorted(replayer.comparison.divergences, key=lambda divergence: divergence.time),
            journal=replayer.journal,
            recorded_journal=run.make_journal(),
            logs=logs,
            duration=run.duration,
            requests=len(run.list_actions("req")),
            is_cut=run.is_cut,
            checkpoint=None if checkpoint is None else checkpoint.time,
        )

    def _enter_time(self, stack: contextlib.ExitStack, loop: VirtualTimeLoop, schedule: Schedule) -> None:
        """Let all code have the recorded time, and no real cluster."""
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kopf-replay-")))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_NOWHERE)
        clock = SimulatedClock(self._run.start, is_frozen=importlib.util.find_spec("time_machine") is not None)
        clock.move(schedule.now)
        clock.follow(loop)
        stack.enter_context(virtual_process(loop, clock, str(kubeconfig), self._fail))
        stack.callback(thread_owner.reset, thread_owner.set(self))
        stack.callback(loop.abandon, self)

    async def _run_operator(self, replayer: Replayer) -> None:
        operating = asyncio.create_task(self._operate(replayer.make_instruments()), name="operator")
        scheduling = asyncio.create_task(replayer.schedule.run(), name="schedule of the replay")
        self._operator = operating
        try:
            await asyncio.wait([operating, scheduling], return_when=asyncio.FIRST_COMPLETED)
            if operating.done() and not operating.cancelled() and (error := operating.exception()) is not None:
                replayer.comparison.note_ending(error)
            await asyncio.wait([scheduling])
            scheduling.result()
        finally:
            scheduling.cancel()
            replayer.comparison.close()
            operating.cancel()
            await asyncio.wait([operating, scheduling])

    def _stop(self) -> None:
        if self._operator is not None:
            self._operator.cancel()

    def _fail(self, problem: SimulationError) -> None:
        self._problem = problem
        self._stop()
