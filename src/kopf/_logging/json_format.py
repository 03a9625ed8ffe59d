"""The JSON format of logs, with the names of all its keys."""

from __future__ import annotations

import datetime
import logging
from typing import Any

from kopf._logging.loggers import get_prefix
from kopf._logging.tracebacks import TrimmingFormatter

try:
    from pythonjsonlogger.json import JsonFormatter
except ModuleNotFoundError:  # its place before 3.1; in later versions, it is deprecated there
    from pythonjsonlogger.jsonlogger import JsonFormatter  # type: ignore[attr-defined]  # deprecated: not declared

DEFAULT_REFKEY = "object"

_SEVERITIES = ((logging.DEBUG, "debug"), (logging.INFO, "info"), (logging.WARNING, "warn"), (logging.ERROR, "error"))
"""The names of levels, with the highest level for each name; higher levels are ``fatal``."""


class ObjectJsonFormatter(TrimmingFormatter, JsonFormatter):
    """A JSON formatter that puts the reference to the object under a key of its own."""

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
        for key in ("settings", "k8s_skip", "k8s_ref", "taskName"):  # not all versions drop the last one
            log_data.pop(key, None)
        if self._prefix:
            log_data["message"] = get_prefix(record) + log_data["message"]
        log_data["timestamp"] = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat()
        if ref := getattr(record, "k8s_ref", None):
            log_data[self._refkey] = ref
        log_data["severity"] = next((name for limit, name in _SEVERITIES if record.levelno <= limit), "fatal")
