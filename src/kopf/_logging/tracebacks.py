"""
Tracebacks: whose code a file is, and which frames of a traceback are worth showing to the users.

A traceback of a handler's error begins with a dozen frames of the framework and of asyncio, always the same. They
are left out up to the first frame of the users' code. If there is no such frame, nothing is left out: it is an error
of the framework then.

Operators can be installed as packages. Their frames look the same as those of the libraries that the framework uses,
so they are looked for only after the place where handlers are called.
"""

from __future__ import annotations

import functools
import linecache
import logging
import os
import site
import traceback
from collections.abc import Generator, Iterator
from types import FrameType, TracebackType
from typing import Any

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_FRAMEWORK = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Not by `sysconfig`: that one loads all that is known of how Python was built.
_STDLIB = os.path.dirname(os.path.abspath(traceback.__file__)) + os.sep
_PACKAGES = tuple(os.path.abspath(path) + os.sep for path in site.getsitepackages())

_INDENT = "    "
_INVOCATION = os.path.join(_FRAMEWORK, "_handlers", "invocation.py")


@functools.lru_cache(maxsize=1000)
def is_framework(filename: str) -> bool:
    """Tell if the file is a part of the framework, or of Python itself."""
    if filename.startswith("<frozen "):
        return True
    path = os.path.abspath(filename)
    # The packages can be installed to a folder inside of that of the standard library.
    return path.startswith(_FRAMEWORK) or (path.startswith(_STDLIB) and not path.startswith(_PACKAGES))


@functools.lru_cache(maxsize=1000)
def is_library(filename: str) -> bool:
    """Tell if the file is a part of the framework, of Python itself, or of an installed package."""
    return is_framework(filename) or os.path.abspath(filename).startswith(_PACKAGES)


def describe_frame(frame: FrameType) -> str:
    """Say in one line where a function is now, with the line of the code."""
    filename, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(filename, line).strip()
    return f"{frame.f_code.co_name}() at {filename}:{line}" + (f": {source}" if source else "")


class TrimmingFormatter(logging.Formatter):
    """
    A formatter that shows the tracebacks beginning from the users' code, unless all of it is to be seen.

    Handlers of logs share the formatted tracebacks via the records. So, each one of these formats its own.
    """

    is_trimming = True

    def format(self, record: logging.LogRecord) -> str:
        shared, record.exc_text = record.exc_text, None
        try:
            return super().format(record)
        finally:
            record.exc_text = shared

    def formatException(self, ei: ExcInfo) -> str:
        return format_traceback(ei, trimming=self.is_trimming)


def format_traceback(exc_info: ExcInfo, *, trimming: bool) -> str:
    """
    Format the traceback; with ``trimming``, beginning from the users' code in all the errors that have led to it.

    Messages of errors can have texts of others in several lines. They are indented, so that they do not look like the
    next records of the log.
    """
    exc_type, exc, tb = exc_info
    if exc_type is None or exc is None:
        return ""
    summary = traceback.TracebackException(exc_type, exc, tb, compact=True)
    for item in _walk(summary):
        item.__class__ = _IndentedSummary
        if isinstance(item.__notes__, list):  # lines of notes are not told from those of messages later on
            item.__notes__ = [_INDENT + _indent(note) for note in item.__notes__]
        if trimming:
            first = _find_users_frame([frame.filename for frame in item.stack])
            item.stack = traceback.StackSummary.from_list(item.stack[first:])
    return "".join(summary.format()).rstrip("\n")


class _IndentedSummary(traceback.TracebackException):
    """One error of a traceback; the second and next lines of its message are indented."""

    def format_exception_only(self, *args: Any, **kwargs: Any) -> Generator[str, None, None]:
        for text in super().format_exception_only(**kwargs):
            yield _indent(text.removesuffix("\n")) + "\n"


def _indent(text: str) -> str:
    return text.replace("\n", f"\n{_INDENT}")


def _walk(summary: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    pending = [summary]
    while pending:
        item = pending.pop()
        yield item
        others = (item.__cause__, item.__context__, *(item.exceptions or ()))
        pending += [other for other in others if other is not None]


def _find_users_frame(filenames: list[str]) -> int:
    """Find where the users' code begins; if it does not, give the beginning of all."""
    for index, name in enumerate(filenames):
        if not is_library(name):
            return index
    if _INVOCATION in filenames:
        for index in range(filenames.index(_INVOCATION), len(filenames)):
            if not is_framework(filenames[index]):
                return index
    return 0
