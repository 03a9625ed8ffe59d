"""
The format of logs for people at a terminal: short, aligned, with a colour for each level.

::

    14:03:12 INFO  default/obj1  Handler 'create_fn' succeeded.

Colours follow https://no-color.org and https://force-color.org: a non-empty ``NO_COLOR`` switches them off, a non-empty
``FORCE_COLOR`` switches them on, even if the stream is not a terminal, e.g. for ``less -R``.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TextIO

from kopf._logging.loggers import get_object_name
from kopf._logging.text_format import ObjectTextFormatter, escape
from kopf._logging.tracebacks import ExcInfo

_MAX_NAME = 40
"""The largest width of the column of names. Longer names are shown in full, as people copy them."""

_LEVELS = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}

_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
_NAME = "\x1b[36m"
_GUIDE = "\x1b[1;35m"
_TAGS = (
    (logging.CRITICAL, "\x1b[1;37;41m"),
    (logging.ERROR, "\x1b[1;31m"),
    (logging.WARNING, "\x1b[33m"),
    (logging.INFO, "\x1b[32m"),
)
_TEXTS = ((logging.ERROR, "\x1b[31m"), (logging.WARNING, "\x1b[33m"), (logging.INFO, ""))


def has_colours(stream: TextIO) -> bool:
    """Tell if the stream can have colours, and the user wants them."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def is_for_people(stream: TextIO) -> bool:
    """Tell if people read the stream, not machines."""
    return stream.isatty() or has_colours(stream)


class TerminalFormatter(ObjectTextFormatter):
    """The formatter for people. The names of objects are aligned by the longest one so far."""

    def __init__(self, *, colours: bool, prefix: bool = True, trimming: bool = True) -> None:
        super().__init__("%(message)s", prefix=False, trimming=trimming)
        self._colours = colours
        self._has_names = prefix
        self._width = 0

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = self._paint(super().formatMessage(record), _choose(record.levelno, _TEXTS))
        name = escape(get_object_name(record)) if self._has_names else ""
        if name:
            self._width = min(max(self._width, len(name)), _MAX_NAME)
            text = f"{self._paint(name, _NAME)}{' ' * (self._width - len(name))}  {text}"
        elif record.name != "root" and record.name.partition(".")[0] != "kopf":
            text = f"{self._paint(escape(record.name.rpartition('.')[2]) + ':', _DIM)} {text}"
        tag = _LEVELS.get(record.levelno, record.levelname)
        return f"{self._make_time(record.created)} {self._paint(f'{tag:5.5}', _choose(record.levelno, _TAGS))} {text}"

    def formatException(self, ei: ExcInfo) -> str:
        return "\n".join(self._paint(line, _DIM) for line in super().formatException(ei).splitlines())

    def format_guide(self, who: str, text: str) -> str:
        """Format a line of the program that runs the operator, so that it differs from the lines of the operator."""
        return f"{self._make_time(time.time())} {self._paint(f'{who:5.5}', _GUIDE)} {text}"

    def _make_time(self, created: float) -> str:
        return self._paint(time.strftime("%H:%M:%S", time.localtime(created)), _DIM)

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours and colour else text


def _choose(level: int, colours: tuple[tuple[int, str], ...]) -> str:
    return next((colour for lowest, colour in colours if level >= lowest), _DIM)
