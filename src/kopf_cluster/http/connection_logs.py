"""What is logged of connections: what the server is to blame for. Broken requests are no news, with no traceback."""
from __future__ import annotations

import logging

from aiohttp import http_exceptions, web


class _ServerFaults(logging.Filter):
    """Lets pass only what the server is to blame for."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (http_exceptions.HttpProcessingError, web.RequestPayloadError))


connection_logger = logging.getLogger("kopf.cluster.connections")
connection_logger.addFilter(_ServerFaults())
