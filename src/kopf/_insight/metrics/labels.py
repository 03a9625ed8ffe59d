"""
Labels: what the metrics are told apart by. There are as many as there are resources and handlers, never as objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kopf._handlers.handlers import Handler
from kopf._values.ids import HandlerId

_SUBHANDLERS = "/*"
_UNKNOWN = "*"


class HandlerNames:
    """
    The names of handlers. The ids of sub-handlers can be made of anything, e.g. of the items of a spec: all those of
    one handler have one name.
    """

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self._known: Collection[str] = {str(handler.id) for handler in handlers}

    def get(self, key: HandlerId) -> str:
        """Get the name of the handler by its id."""
        if key in self._known:
            return key
        parent = str(key)
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in self._known:
                return parent + _SUBHANDLERS
        return _UNKNOWN
