"""What is raised by the test kit if it is used in a wrong way."""

from __future__ import annotations


class SimulationError(Exception):
    """The simulation cannot go on: it is used in a wrong way, or something in it is stuck."""


NOT_BEGUN = "The simulation has not begun: use it as a context manager."
