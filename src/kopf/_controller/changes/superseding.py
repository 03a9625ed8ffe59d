"""
Superseding: telling if an object was handled by somebody else while we were handling it.

Operators that know of each other do not work at once; but it takes a moment to notice, and longer if the streams are
silent or there is no peering. Then both handle the object in different states of it, and whoever writes the last, is
not always the one who has seen the latest state. What another operator writes to the object, are the same traces as
ours: the last handled configuration, and the progress of the handlers.
"""

from __future__ import annotations

from collections.abc import Collection

from kopf._handlers.handlers import ChangingHandler
from kopf._settings.settings import PersistenceSettings
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch


class Superseding:
    """Compares the traces on the object to those that were there, and to those that we are about to leave."""

    def __init__(
        self, persistence: PersistenceSettings, handlers: Collection[ChangingHandler], obj: KubeObject, outgoing: Patch
    ) -> None:
        self._persistence = persistence
        self._handlers = handlers
        self._obj = obj
        self._outgoing = outgoing

    def __call__(self, obj: KubeObject) -> bool:
        """
        Tell if the traces in this state of the object are neither of those.

        Ours can be there already, if only the response to our patch was lost. The absence of traces means nothing:
        they are removed by those who replace the whole object, and that is not to repeat the handlers.
        """
        before = self._get_traces(Body(self._obj))
        after = self._get_traces(Body(self._outgoing.apply_to(self._obj)))
        traces = self._get_traces(Body(obj))
        return any(
            trace is not None and trace not in known for trace, *known in zip(traces, before, after, strict=True)
        )

    def _get_traces(self, body: Body) -> list[object]:
        progress = self._persistence.progress_storage
        records: list[object] = [progress.fetch(key=handler.id, body=body) for handler in self._handlers]
        return [self._persistence.diffbase_storage.fetch(body=body), *records]
