"""
Simulations for plain tests: the same methods, but no coroutines.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kopf._testing.simulation import Simulation
from kopf._virtual_time.patience import NOT_BEGUN, SimulationError
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop, is_in_loop

P = ParamSpec("P")
T = TypeVar("T")
_PASSING = (
    "A simulation is already running: coroutines and handlers cannot wait for its time in this way. "
    "In `async def` tests, await the methods of Simulation. "
    "For conditions about objects, use `expect(kind, name, condition=...)`."
)


def simulate(test: Callable[[Simulation], Coroutine[Any, Any, T]], /, *paths: Any, **options: Any) -> T:
    """
    Run a coroutine function with a simulation, and return its result: for scripts, and for other test frameworks.

    The options are the same as in :class:`Simulation`.
    """
    with SyncSimulation(*paths, **options) as simulation:
        return simulation.run(test(simulation.simulation))


def _facade(
    method: Callable[Concatenate[Simulation, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncSimulation, P], T]:
    """Make a method that waits for the coroutine of that one."""

    def call(self: SyncSimulation, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(method(self.simulation, *args, **kwargs))

    return functools.update_wrapper(call, method)


class SyncSimulation:
    """
    A simulation for tests that are regular functions: the same methods, without ``await``.

    Attributes and methods that do not wait (``journal``, ``logs``, ``faults``, ``now``, ``crash_after``, ...) are the
    same as there. Time passes only inside of the methods.

    :param paths: the files of the operator, as for :class:`Simulation`; so are all options.
    """

    def __init__(self, *paths: Any, **options: Any) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self._make = functools.partial(Simulation, *paths, **options)
        self._simulation: Simulation | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        if is_in_loop():
            raise SimulationError(_PASSING)
        self._runner.__enter__()
        try:
            self._simulation = self._make()
            self._runner.run(self._simulation.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.run(self.simulation.__aexit__(exc_type, exc, traceback))
        finally:
            self._is_over = True
            self._runner.close()

    @property
    def simulation(self) -> Simulation:
        """The simulation for coroutines."""
        if self._simulation is None:
            raise SimulationError(NOT_BEGUN)
        return self._simulation

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Let time pass until the coroutine is done."""
        if self._is_over or is_in_loop() or self._runner.get_loop().is_running():
            coro.close()
            raise SimulationError("The simulation is over." if self._is_over else _PASSING)
        return self._runner.run(coro)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or inspect.iscoroutinefunction(getattr(Simulation, name, None)):
            raise AttributeError(name)
        return getattr(self.simulation, name)

    advance = _facade(Simulation.advance)
    settle = _facade(Simulation.settle)
    until = _facade(Simulation.until)
    apply = _facade(Simulation.apply)
    get = _facade(Simulation.get)
    find = _facade(Simulation.find)
    list = _facade(Simulation.list)
    patch = _facade(Simulation.patch)
    edit = _facade(Simulation.edit)
    delete = _facade(Simulation.delete)
    events = _facade(Simulation.events)
    expect = _facade(Simulation.expect)
    timeline = _facade(Simulation.timeline)
    replicas = _facade(Simulation.replicas)
    stop = _facade(Simulation.stop)
    crash = _facade(Simulation.crash)
    restart = _facade(Simulation.restart)
    downtime = _facade(Simulation.downtime)
