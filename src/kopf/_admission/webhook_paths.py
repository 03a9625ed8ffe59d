"""
Paths of webhooks: by which the admission handlers are called from outside, i.e. the last part of the URLs.

It is the id of the handler. But a function can be declared both as validating and as mutating, and then it must be
known as which of them it is called, as the API server does not tell that in its reviews. So there is
one more, unambiguous path for each type, and it is that one that goes to the managed configurations.

The API servers take only such paths of services that are made of names as in DNS, so there is one more path like that
for the ids with underscores and the like.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from kopf._handlers.handlers import WebhookHandler


class WebhookPaths:
    """The admission handlers of an operator by the paths of their webhooks."""

    def __init__(self, handlers: Iterable[WebhookHandler]) -> None:
        self._handlers: dict[str, list[WebhookHandler]] = {}
        for handler in handlers:
            for name in (handler.id, _make_unambiguous_path(handler)):
                self._handlers.setdefault(name, []).append(handler)
        self._service_paths: dict[str, str] = {}
        for name in list(self._handlers):
            service_path = self._service_paths[name] = _make_service_path(name, self._handlers)
            self._handlers.setdefault(service_path, self._handlers[name])

    def find(self, name: str) -> Sequence[WebhookHandler]:
        """The handlers that are called by this path; nothing if there are none."""
        return self._handlers.get(name, ())

    def get(self, handler: WebhookHandler) -> str:
        """The path by which the handler (and all of the same id and type) is to be called."""
        is_ambiguous = len({other.type for other in self._handlers[handler.id]}) > 1
        return _make_unambiguous_path(handler) if is_ambiguous else handler.id

    def get_of_service(self, handler: WebhookHandler) -> str:
        """The same, but as it is in the path of a service."""
        return self._service_paths[self.get(handler)]


def _make_unambiguous_path(handler: WebhookHandler) -> str:
    return f"{handler.id}:{handler.type}"


def _make_service_path(name: str, used: Collection[str]) -> str:
    """Make a path of DNS names of any name; it stays as it is if it is one. It is none of the others."""
    steps = [re.sub(r"[^a-z0-9.]+", "-", step) for step in name.lower().split("/")]
    made = base = "/".join(re.sub(r"[-.]*\.[-.]*", ".", step).strip("-.") or "handler" for step in steps)
    number = 1
    while made in used and made != name:
        number += 1
        made = f"{base}-{number}"
    return made
