"""The text formats of logs: one line per message, which can begin with the name of the object."""

from __future__ import annotations

import logging
import re

from kopf._logging.loggers import get_prefix
from kopf._logging.tracebacks import ExcInfo, TrimmingFormatter

# Characters that move the cursor, begin a new line, or change the direction of the text.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROLS_OF_TRACEBACKS = re.compile(_CONTROLS.pattern.replace(r"\x0a-", r"\x0b-"))


def escape(text: str) -> str:
    """Show the control characters of the text instead of obeying them."""
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)  # a faster check: nearly all are


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


class ObjectTextFormatter(TrimmingFormatter):
    """
    A text formatter that can put the name of the object in front of the messages about it.

    Messages can contain texts from objects and servers. All control characters are escaped, so that these texts neither
    look like other log lines nor control the terminal. Only tracebacks take several lines.
    """

    def __init__(self, fmt: str, *, prefix: bool, trimming: bool = True) -> None:
        super().__init__(fmt)
        self._prefix = prefix
        self.is_trimming = trimming

    def formatMessage(self, record: logging.LogRecord) -> str:
        # The attribute exists only during the formatting: every formatter makes it anew.
        if self._prefix:
            record.message = get_prefix(record) + record.message
        record.message = escape(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: ExcInfo) -> str:
        return _CONTROLS_OF_TRACEBACKS.sub(_escape, super().formatException(ei))
