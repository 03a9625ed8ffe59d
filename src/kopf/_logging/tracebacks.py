"""
Tracebacks: the owner of a file (the user, a library, the framework), and the frames that are worth showing.

The traceback of an error in a handler begins with a dozen frames of the framework and of asyncio, always the same.
They are left out, up to the first frame of the user's code. Without such a frame, it is an error of the framework, and
nothing is left out.

Operators can be installed as packages. Their frames look like frames of the framework's libraries, so they
are searched for only after the place where handlers are called.
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
# Not by `sysconfig`, which loads everything about the build of Python.
_STDLIB = os.path.dirname(os.path.abspath(traceback.__file__)) + os.sep
_PACKAGES = tuple(os.path.abspath(path) + os.sep for path in site.getsitepackages())

_INDENT = "    "
_EXECUTOR = os.path.join(_FRAMEWORK, "_handlers", "executor.py")
_INVOCATIONS = {(_EXECUTOR, "invoke"), (_EXECUTOR, "invoke_in_thread")}
"""The functions that call the functions of users."""


@functools.lru_cache(maxsize=1000)
def is_framework(filename: str) -> bool:
    """Tell if the file is a part of the framework, or of Python itself."""
    if filename.startswith("<frozen "):
        return True
    path = os.path.normpath(filename)  # of imported files, it is absolute; the current directory can be gone
    # Packages can be installed in a folder inside of the standard library.
    return path.startswith(_FRAMEWORK) or (path.startswith(_STDLIB) and not path.startswith(_PACKAGES))


@functools.lru_cache(maxsize=1000)
def is_library(filename: str) -> bool:
    """Tell if the file is a part of the framework, of Python itself, or of an installed package."""
    return is_framework(filename) or os.path.normpath(filename).startswith(_PACKAGES)


def describe_frame(frame: FrameType) -> str:
    """Describe the current place of a function in one line, with the line of its code."""
    filename, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(filename, line).strip()
    return f"{frame.f_code.co_name}() at {filename}:{line}" + (f": {source}" if source else "")


class TrimmingFormatter(logging.Formatter):
    """
    A formatter whose tracebacks begin at the user's code, unless full tracebacks are requested.

    Log handlers share formatted tracebacks via the records, so this formatter hides the shared one and formats its own.
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


def has_users_frame(error: BaseException) -> bool:
    """Tell if the error was raised by the user's code, or passed through it."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(_list_users_frames([(code.co_filename, code.co_name) for code in codes]))


def format_traceback(exc_info: ExcInfo, *, trimming: bool) -> str:
    """
    Format the traceback. With ``trimming``, the error and its causes begin at the user's code.

    Messages of errors can contain several lines of foreign text. They are indented, so that they do not look like the
    next log lines.
    """
    exc_type, exc, tb = exc_info
    if exc_type is None or exc is None:
        return ""
    summary = traceback.TracebackException(exc_type, exc, tb, compact=True)
    for item in _walk(summary):
        item.__class__ = _IndentedSummary
        if isinstance(item.__notes__, list):  # later on, notes cannot be told from messages
            item.__notes__ = [_INDENT + _indent(note) for note in item.__notes__]
        if trimming:
            first = _find_users_frame([(frame.filename, frame.name) for frame in item.stack])
            item.stack = traceback.StackSummary.from_list(item.stack[first:])
    return "".join(summary.format()).rstrip("\n")


class _IndentedSummary(traceback.TracebackException):
    """One error of a traceback. All lines of its message but the first one are indented."""

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


def _find_users_frame(frames: list[tuple[str, str]]) -> int:
    """Find the first frame of the user's code, by the files and functions; without such, it is the very first frame."""
    found = _list_users_frames(frames)
    return found[0] if found else 0


def _list_users_frames(frames: list[tuple[str, str]]) -> list[int]:
    found = [index for index, (filename, _) in enumerate(frames) if not is_library(filename)]
    if not found:
        invocation = next((index for index, frame in enumerate(frames) if frame in _INVOCATIONS), len(frames))
        found = [index for index in range(invocation, len(frames)) if not is_framework(frames[index][0])]
    return found
