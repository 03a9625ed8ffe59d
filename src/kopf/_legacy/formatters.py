"""Log formatters with their former names and arguments, for the logging configurations of applications."""

from __future__ import annotations

from kopf._logging.json_format import DEFAULT_REFKEY
from kopf._logging.json_format import ObjectJsonFormatter as JsonFormatter
from kopf._logging.text_format import ObjectTextFormatter as TextFormatter


class ObjectTextFormatter(TextFormatter):
    """Text without prefixes."""

    def __init__(self, fmt: str = "%(message)s") -> None:
        super().__init__(fmt, prefix=False)


class ObjectPrefixingTextFormatter(TextFormatter):
    """Text, prefixed with the namespace & name of the object."""

    def __init__(self, fmt: str = "%(message)s") -> None:
        super().__init__(fmt, prefix=True)


class ObjectJsonFormatter(JsonFormatter):
    """JSON, with the reference to the object."""

    def __init__(self, *, refkey: str | None = None) -> None:
        super().__init__(prefix=False, refkey=refkey or DEFAULT_REFKEY)


class ObjectPrefixingJsonFormatter(JsonFormatter):
    """JSON, with the reference to the object, and with its namespace and name in the message, too."""

    def __init__(self, *, refkey: str | None = None) -> None:
        super().__init__(prefix=True, refkey=refkey or DEFAULT_REFKEY)
