"""
The configuration of logging, as the command line does it.

The logging is configured only by those who own the process: by the command line, or by a user's explicit call
of :func:`configure`. When an operator is embedded, the logging configuration of the application is respected.
"""

from __future__ import annotations

import enum
import logging
import sys
from typing import TextIO

from kopf._logging.log_levels import set_reader
from kopf._logging.text_format import ObjectTextFormatter

# The libraries whose messages below warnings are about their internals, not about what the operator does.
LOWLEVEL_LOGGERS = ("asyncio", "aiohttp")


class LogFormat(enum.Enum):
    """The log formats of the command line; the values are the format strings of :mod:`logging`."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """
    The handler of :func:`configure`: writes to the standard error stream, whatever that is at the moment.

    The class is also the mark by which the next call finds & replaces it, and leaves others' handlers alone.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # an attribute there; a property for late binding
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """As in the base class, but the stream is looked up only once for a message, not four times."""
        try:
            stream = sys.stderr
            stream.write(self.format(record) + self.terminator)
            stream.flush()
        except RecursionError:  # see the base class: bpo-36272
            raise
        except Exception:
            self.handleError(record)


def configure(
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> None:
    """
    Configure the logging of the whole process, as the command line does it.

    Repeated calls replace the configuration. The handlers installed by anyone else are kept.

    :param debug: log everything, including the internals of asyncio & aiohttp and the API traffic.
    :param verbose: log the debug messages, but not those of the internals.
    :param quiet: log only warnings & errors. The level is INFO if none of these three is set.
    :param log_format: one of the predefined formats, or any format string of :mod:`logging`.
    :param log_prefix: whether the messages about an object begin with ``[namespace/name]``;
        if ``None``, then all formats except for JSON have it.
    :param log_refkey: the key of the object's reference in the JSON format; ``object`` by default.
    """
    formatter = make_formatter(
        log_format=log_format, log_prefix=log_prefix, log_refkey=log_refkey, full_tracebacks=bool(debug)
    )
    set_reader(is_human=False)
    _install(formatter, debug=debug, verbose=verbose, quiet=quiet)


def configure_for_terminal(
    *, debug: bool = False, verbose: bool = False, quiet: bool = False, log_prefix: bool | None = None
) -> None:
    """Configure the logging of the whole process for people, if they read it; as :func:`configure` does otherwise."""
    from kopf._logging.terminal_format import TerminalFormatter, has_colours, is_for_people  # pods have no terminals

    if not is_for_people(sys.stderr):
        configure(debug=debug, verbose=verbose, quiet=quiet, log_prefix=log_prefix)
        return
    has_names = log_prefix is None or log_prefix
    formatter = TerminalFormatter(colours=has_colours(sys.stderr), prefix=has_names, trimming=not debug)
    set_reader(is_human=True)
    _install(formatter, debug=debug, verbose=verbose, quiet=quiet)


def _install(formatter: logging.Formatter, *, debug: bool | None, verbose: bool | None, quiet: bool | None) -> None:
    handler = ConsoleHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for other in root.handlers[:]:
        if isinstance(other, ConsoleHandler):
            root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO)

    # Never silenced completely: e.g., asyncio reports the errors that nobody has handled.
    for name in LOWLEVEL_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET if debug else logging.WARNING)


def make_formatter(
    *,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = None,
    log_refkey: str | None = None,
    full_tracebacks: bool = False,
) -> logging.Formatter:
    """
    Make a formatter for one's own handlers; the arguments are the same as in :func:`configure`.

    The format can also be named, as in the command line: it is so in the configuration files of :mod:`logging`.
    Unless ``full_tracebacks`` are asked for, they begin from the users' code, with no frames of the framework.
    Raises :class:`ValueError` if the format string is wrong.
    """
    trimming = not full_tracebacks
    log_format = parse_log_format(log_format) if isinstance(log_format, str) else log_format
    if log_format is LogFormat.JSON:
        from kopf._logging.json_format import DEFAULT_REFKEY, ObjectJsonFormatter  # it needs a library

        return ObjectJsonFormatter(prefix=bool(log_prefix), refkey=log_refkey or DEFAULT_REFKEY, trimming=trimming)
    fmt = log_format.value if isinstance(log_format, LogFormat) else log_format
    return ObjectTextFormatter(fmt, prefix=log_prefix is None or log_prefix, trimming=trimming)


def parse_log_format(value: str) -> LogFormat | str:
    """Find the format by its name; any other text is a format string."""
    return {item.name.lower(): item for item in LogFormat}.get(value.lower(), value)


_canary = logging.getLogger(__name__)
"""It logs nothing, so nobody disables it on purpose: if it is disabled, then so is everything."""


def revive_loggers() -> None:
    """
    Enable those loggers of the framework which were disabled as "existing" by somebody's logging configuration.

    Those that users have disabled one by one, stay so.
    """
    if not _canary.disabled:
        return
    for name, item in logging.root.manager.loggerDict.items():
        if isinstance(item, logging.Logger) and name.partition(".")[0] == "kopf":
            item.disabled = False
