"""An observer that remembers all that it was told."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from kopf._client.client_observer import ClientObserver, Headers
from kopf._controller.observer import Observer
from kopf._handlers.attempts import AttemptObserver
from kopf._handlers.causes import ActivityCause


class Notice:
    """What was told: the name of the method, and its arguments as attributes."""

    def __init__(self, name: str, **values: Any) -> None:
        self.name = name
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:  # of the arguments: they are not known to the checks of types
        raise AttributeError(name)


class Notices(Observer, list[Notice]):
    """Remembers everything, in its order."""

    def __init__(self) -> None:
        for base in (ClientObserver, AttemptObserver, Observer):
            for name, method in vars(base).items():
                if inspect.isfunction(method) and name != "request_begun":
                    setattr(self, name, functools.partial(self._note, name, inspect.signature(method)))

    def _note(self, name: str, signature: inspect.Signature, *args: Any) -> None:
        _, *names = signature.parameters
        self.append(Notice(name, **dict(zip(names, args, strict=True))))

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        self.append(Notice("request_begun", method=method, target=target, server=server, headers=headers))
        return headers

    def of(self, *names: str) -> list[Notice]:
        """Those of the names, but for the logins: these have handlers, too."""
        return [item for item in self if item.name in names and not isinstance(vars(item).get("cause"), ActivityCause)]
