"""Operators in virtual time, which are observed; what happens to them, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._controller.observer import Observers
from kopf.testing import Simulation


def get_observers(simulation: Simulation) -> Observers:
    """Those of the operators of the simulation, by its clock."""
    assert simulation._birth is not None
    simulation._birth.observers.clock = lambda: simulation.wall_clock.timestamp()
    return simulation._birth.observers


async def apply(simulation: Simulation, *objects: Mapping[str, Any], seconds: float = 0) -> None:
    """Let the operator handle these objects: for so many seconds, or until there is nothing to do."""
    for obj in objects:
        await simulation.apply(obj)
    await (simulation.advance(seconds=seconds) if seconds else simulation.settle())


async def begin(simulation: Simulation, *objects: Mapping[str, Any], seconds: float = 0) -> None:
    """Start the operator, and let it handle these objects."""
    await simulation.restart()
    await simulation.settle()
    if objects:
        await apply(simulation, *objects, seconds=seconds)
