"""The tests of a file have one operator in common."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """Look for no leaks: that operator opens connections whenever it wants. It leaves none in the end of the file."""
