"""
Logging: the loggers of the objects being handled, and the formats of the command line.

The messages about an object go through an :class:`ObjectLogger`, which attaches a reference to that object
to every log record. What becomes of the reference is up to the handlers & formatters of the logging system:
the text formats turn it into a prefix, the JSON format puts it under a key, and the event posting posts
the message as a Kubernetes event for that object.

The logging is configured only by those who own the process: by the command line, or by a user's explicit call
of :func:`configure`. When an operator is embedded, the logging configuration of the application is respected.
"""

from __future__ import annotations

import datetime
import enum
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

from kopf._logging.tracebacks import ExcInfo, format_trimmed
from kopf._settings.settings import OperatorSettings
from kopf._values.references import ObjectReference, build_object_reference

try:
    from pythonjsonlogger.json import JsonFormatter
except ModuleNotFoundError:  # before 3.1, it was there; later on, it is there too, but deprecated
    from pythonjsonlogger.jsonlogger import JsonFormatter  # type: ignore[attr-defined]  # deprecated: not declared

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""What handlers get as ``logger``."""

objects_logger = logging.getLogger("kopf.objects")

DEFAULT_REFKEY = "object"

# The libraries whose messages below warnings are about their internals, not about what the operator does.
LOWLEVEL_LOGGERS = ("asyncio", "aiohttp")


class LogFormat(enum.Enum):
    """The log formats of the command line; the values are the format strings of :mod:`logging`."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """
    A logger of everything that is related to one object.

    Every record carries, as its attributes: ``k8s_ref`` -- a reference to the object (a dict, as in core/v1);
    ``settings`` -- the operator's settings; ``k8s_skip`` -- whether the message is never posted as an event.

    The reference is built when the first message is really logged: loggers are made for every handling
    cycle, and most of them log nothing.
    """

    k8s_skip = False

    def __init__(self, *, body: Mapping[str, Any], settings: OperatorSettings) -> None:
        super().__init__(objects_logger, None)
        self._body = body
        self._settings = settings
        self._extra: dict[str, Any] | None = None

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Attach the object's reference to the record; the explicit ``extra=`` is kept and has priority."""
        if self._extra is None:
            self._extra = {
                "settings": self._settings,
                "k8s_skip": self.k8s_skip,
                "k8s_ref": build_object_reference(self._body),
            }
        extra = kwargs.get("extra")
        kwargs["extra"] = {**self._extra, **extra} if extra else self._extra
        return msg, kwargs


class LocalObjectLogger(ObjectLogger):
    """The same as :class:`ObjectLogger`, but its messages are never posted as Kubernetes events."""

    k8s_skip = True


class _TracebackFormatter(logging.Formatter):
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
        return format_trimmed(ei) if self.is_trimming else super().formatException(ei)


# All that moves the cursor, begins a new line, or changes the direction of the text.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROLS_OF_TRACEBACKS = re.compile(_CONTROLS.pattern.replace(r"\x0a-", r"\x0b-"))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


class ObjectTextFormatter(_TracebackFormatter):
    """
    A text formatter that puts the object's identity in front of the messages about it, if asked to.

    The messages can have texts from objects and servers. So that these do not look like other log lines, and do not
    control the terminal, all control characters are escaped. Only tracebacks take several lines.
    """

    def __init__(self, fmt: str, *, prefix: bool, trimming: bool = True) -> None:
        super().__init__(fmt)
        self._prefix = prefix
        self.is_trimming = trimming

    def formatMessage(self, record: logging.LogRecord) -> str:
        # The attribute exists only for the formatting: every formatter makes it anew.
        if self._prefix:
            record.message = _get_prefix(record) + record.message
        record.message = _CONTROLS.sub(_escape, record.message)
        return super().formatMessage(record)

    def formatException(self, ei: ExcInfo) -> str:
        return _CONTROLS_OF_TRACEBACKS.sub(_escape, super().formatException(ei))


class ObjectJsonFormatter(_TracebackFormatter, JsonFormatter):
    """A JSON formatter that puts the object's reference under a key of its own."""

    def __init__(self, *, prefix: bool, refkey: str, trimming: bool = True) -> None:
        super().__init__("%(message)s")
        self.is_trimming = trimming
        self._prefix = prefix
        self._refkey = refkey

    def add_fields(
            self,
            log_data: dict[str, Any],
            record: logging.LogRecord,
            message_dict: dict[str, Any],
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        for key in ("settings", "k8s_skip", "k8s_ref", "taskName"):  # the last one: not all versions drop it
            log_data.pop(key, None)
        if self._prefix:
            log_data["message"] = _get_prefix(record) + log_data["message"]
        log_data["timestamp"] = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat()
        if ref := getattr(record, "k8s_ref", None):
            log_data[self._refkey] = ref
        log_data["severity"] = _get_severity(record.levelno)


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
    handler = ConsoleHandler()
    handler.setFormatter(make_formatter(
        log_format=log_format, log_prefix=log_prefix, log_refkey=log_refkey, full_tracebacks=bool(debug)
    ))

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


def _get_prefix(record: logging.LogRecord) -> str:
    ref: ObjectReference | None = getattr(record, "k8s_ref", None)
    if not ref:
        return ""
    namespace, name = ref.get("namespace"), ref.get("name", "")
    return f"[{namespace}/{name}] " if namespace else f"[{name}] "


def _get_severity(level: int) -> str:
    if level <= logging.DEBUG:
        return "debug"
    elif level <= logging.INFO:
        return "info"
    elif level <= logging.WARNING:
        return "warn"
    elif level <= logging.ERROR:
        return "error"
    else:
        return "fatal"
