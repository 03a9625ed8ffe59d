"""
Paths of webhooks: the last parts of the URLs by which the API servers call the admission handlers.

The path is the id of the handler. A function can be both a validating and a mutating handler, and the reviews of the
API servers do not tell which of them is meant. So each handler also has an unambiguous path with its type, which is
used in the managed configurations where necessary.

For services, the API servers accept only paths that consist of DNS names. So ids with other characters, such as
underscores, have one more path.
"""

from __future__ import annotations

import itertools
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
        """Find the handlers of this path."""
        return self._handlers.get(name, ())

    def get(self, handler: WebhookHandler) -> str:
        """Get the path of the handler, and of all others with the same id and type."""
        is_ambiguous = len({other.type for other in self._handlers[handler.id]}) > 1
        return _make_unambiguous_path(handler) if is_ambiguous else handler.id

    def get_of_service(self, handler: WebhookHandler) -> str:
        """Get the path of the handler for services."""
        return self._service_paths[self.get(handler)]


def _make_unambiguous_path(handler: WebhookHandler) -> str:
    return f"{handler.id}:{handler.type}"


def _make_service_path(name: str, used: Collection[str]) -> str:
    """Make a path of DNS names. A name that is such a path already stays; any other becomes one that is not used."""
    path = "/".join(map(make_dns_name, name.split("/")))
    return name if path == name else make_unique(path, used)


def make_dns_name(text: str) -> str:
    """Turn any text into a DNS name: lowercase letters and digits, with dots and dashes between them."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower())
    return re.sub(r"[-.]*\.[-.]*", ".", name).strip("-.") or "handler"


def make_unique(name: str, used: Collection[str]) -> str:
    """Add a number to the name if it is used already."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(item for item in itertools.chain([name], numbered) if item not in used)
