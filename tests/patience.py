"""Patience: for how long the tests wait for what has to happen. It is for what hangs: busy machines are slow."""
from __future__ import annotations

PATIENCE = 120.0
"""In seconds; less than the time for a whole test, so that it is said what was waited for."""
