"""
The configuration of logging by the command line, or by an explicit call of :func:`configure`.

Nothing else configures the logging: embedded operators respect the configuration of the application.
"""

from __future__ import annotations

import enum
import logging
import sys
from typing import TextIO

from kopf._logging.log_levels import set_reader
from kopf._logging.text_format import ObjectTextFormatter

# Libraries whose messages below warnings are about their internals, not about the operator.
LOWLEVEL_LOGGERS = ("asyncio", "aiohttp")


class LogFormat(enum.Enum):
    """The log formats of the command line. The values are format strings of :mod:`logging`, except for JSON."""

    PLAIN = "%(message)s"
    """The message only."""
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    """The time, the logger, the level, and the message."""
    JSON = "-json-"
    """One JSON object for each line."""


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """
    The handler of :func:`configure`: writes to the current standard error stream.

    By this class, the next call recognises and replaces the handler, and leaves the handlers of others alone.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # an attribute there; here, a property that looks it up late
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Do as the base class does, but look the stream up only once for a message, not four times."""
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

    Repeated calls replace the configuration. Log handlers of others are kept.

    Raises :class:`ValueError` if the format string is wrong.

    :param debug: log everything, including the internals of ``asyncio`` and ``aiohttp``, and the API traffic.
    :param verbose: log debug messages, except for those internals.
    :param quiet: log only warnings and errors. The level is ``INFO`` if none of these three is set.
    :param log_format: one of the predefined formats, or any format string of :mod:`logging`.
    :param log_prefix: whether messages about an object begin with ``[namespace/name]``. With ``None``, they do in all
        formats except for JSON.
    :param log_refkey: the key of the reference to the object in the JSON format; ``object`` by default.
    """
    formatter = make_formatter(
        log_format=log_format, log_prefix=log_prefix, log_refkey=log_refkey, full_tracebacks=bool(debug)
    )
    set_reader(is_human=False)
    _install(formatter, debug=debug, verbose=verbose, quiet=quiet)


def configure_for_terminal(
    *, debug: bool = False, verbose: bool = False, quiet: bool = False, log_prefix: bool | None = None
) -> None:
    """Configure the logging for people if they read the standard error stream; else, as :func:`configure` does."""
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

    # They are never silenced completely: e.g., asyncio reports errors that nobody has handled.
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
    Make a formatter for other log handlers. The arguments are the same as in :func:`configure`.

    ``log_format`` can also be the name of a format, as in the command line: for configuration files of :mod:`logging`.
    Unless ``full_tracebacks`` is true, tracebacks begin at the user's code, without the frames of the framework.
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
    """Find the format by its name. Any other text is a format string."""
    return {item.name.lower(): item for item in LogFormat}.get(value.lower(), value)


_canary = logging.getLogger(__name__)
"""Nobody disables this logger on purpose, as it logs nothing. If it is disabled, then so are all others."""


def revive_loggers() -> None:
    """
    Enable the loggers of the framework that a logging configuration has disabled as "existing".

    Loggers that users have disabled one by one stay disabled.
    """
    if not _canary.disabled:
        return
    for name, item in logging.root.manager.loggerDict.items():
        if isinstance(item, logging.Logger) and name.partition(".")[0] == "kopf":
            item.disabled = False
