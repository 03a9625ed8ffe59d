"""
Levels of a few messages, which depend on who reads the logs of this process: people at a terminal, or machines.

Machines get the lines that they search for. People get fewer internals, and the lines that explain: so a few messages
have other levels for them.
"""

from __future__ import annotations

import logging


class _Reader:
    def __init__(self) -> None:
        self.is_human = False


_reader = _Reader()  # one for the process, as the logging itself


def set_reader(*, is_human: bool) -> None:
    """Note who reads the logs; for those who configure the logging."""
    _reader.is_human = is_human


def is_human() -> bool:
    """Tell if people read the logs at a terminal."""
    return _reader.is_human


def get_internal_level() -> int:
    """Get the level of what the framework does for itself: log searches know these lines, people do not need them."""
    return logging.DEBUG if _reader.is_human else logging.INFO


def get_guiding_level() -> int:
    """Get the level of what people want to see while they wait; machines have other means for that."""
    return logging.INFO if _reader.is_human else logging.DEBUG
