"""
Levels of messages that depend on the reader of the logs: people at a terminal, or machines.

Machines get the lines that they search for. People get fewer internals and more explanations, so a few messages have
other levels for them.
"""

from __future__ import annotations

import logging
import types

_reader = types.SimpleNamespace(is_human=False)  # one for the process, as the logging itself


def set_reader(*, is_human: bool) -> None:
    """Set the reader of the logs. To be called when the logging is configured."""
    _reader.is_human = is_human


def is_human() -> bool:
    """Tell if people read the logs at a terminal."""
    return bool(_reader.is_human)


def get_internal_level() -> int:
    """Get the level of internal messages: log searches rely on these lines, people do not need them."""
    return logging.DEBUG if _reader.is_human else logging.INFO


def get_guiding_level() -> int:
    """Get the level of messages for people who wait; machines have other means."""
    return logging.INFO if _reader.is_human else logging.DEBUG
