"""Results of handlers: their JSON form, and their delivery to the status of the object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Outcome
from kopf._values import codec
from kopf._values.patches import Patch


def make_content(result: Any) -> Any:
    """Convert the result of a handler to JSON values. Raises :class:`TypeError` or :class:`ValueError`."""
    return codec.decode(codec.encode(result))


def deliver_result(handler: Handler, outcome: Outcome, patch: Patch) -> None:
    """
    Put the result of the handler to the status, if it has a JSON form, and sign the changes of the handler.

    The fields of a result join those that the handler has put there itself, through the patch.
    """
    if (content := outcome.content) is not None:
        status = patch.ensure_stanza("status")
        own = status.get(handler.id)
        if own and isinstance(content, dict) and isinstance(own, Mapping):
            content = {**own, **content}
        status[handler.id] = content
    if patch:
        patch.sign(str(handler))
