"""Results: what a handler returns goes to the status of its object."""

from __future__ import annotations

from typing import Any

from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Outcome
from kopf._logging.loggers import Logger
from kopf._values import codec
from kopf._values.patches import Patch, thaw


def deliver_result(handler: Handler, outcome: Outcome, patch: Patch, *, logger: Logger) -> None:
    """Put the result of the handler to the status, unless it has no JSON form: then it is reported and dropped."""
    if outcome.result is None:
        return
    try:
        result = codec.decode(_encode(outcome.result))
    except (TypeError, ValueError) as e:
        logger.error("%s has returned a value that cannot be stored in the status as JSON: %s", handler, e)
    else:
        patch.ensure_stanza("status")[handler.id] = result


def _encode(result: Any) -> bytes:
    try:
        return codec.encode(result)
    except TypeError:
        return codec.encode(thaw(result))  # there can be the views of the body in it
