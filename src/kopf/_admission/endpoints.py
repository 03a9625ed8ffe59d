"""
Endpoints: the names by which the admission handlers are called from outside, i.e. the last part of the URLs.

It is the id of the handler. But a function can be declared both as validating and as mutating, and then it must be
known as which of them it is called, as the API server does not tell that in its reviews. So there is
one more, unambiguous name for each type, and it is that one that goes to the managed configurations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kopf._handlers.handlers import WebhookHandler


class Endpoints:
    """The admission handlers of an operator by the names of their endpoints."""

    def __init__(self, handlers: Iterable[WebhookHandler]) -> None:
        self._handlers: dict[str, list[WebhookHandler]] = {}
        for handler in handlers:
            for name in (handler.id, _make_unambiguous_name(handler)):
                self._handlers.setdefault(name, []).append(handler)

    def find(self, name: str) -> Sequence[WebhookHandler]:
        """The handlers that are called by this name; nothing if there are none."""
        return self._handlers.get(name, ())

    def get_name(self, handler: WebhookHandler) -> str:
        """The name by which the handler (and all of the same id and type) is to be called."""
        is_ambiguous = len({other.type for other in self._handlers[handler.id]}) > 1
        return _make_unambiguous_name(handler) if is_ambiguous else handler.id


def _make_unambiguous_name(handler: WebhookHandler) -> str:
    return f"{handler.id}:{handler.type}"
