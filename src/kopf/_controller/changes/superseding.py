"""
Superseding: whether another operator has handled an object while this one was handling it.

Operators that know of each other do not work at once; but they need a moment to notice each other, and longer if their
streams are silent or there is no peering. Then both handle the object in different states, and the last writer has not
always seen the latest state. Another operator leaves the same traces as this one: the last handled configuration, and
the progress of the handlers.
"""

from __future__ import annotations

from collections.abc import Collection

from kopf._handlers.handlers import ChangingHandler
from kopf._settings.settings import PersistenceSettings
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch


def is_superseded(
    obj: KubeObject,
    *,
    persistence: PersistenceSettings,
    handlers: Collection[ChangingHandler],
    before: KubeObject,
    outgoing: Patch,
) -> bool:
    """
    Tell if the traces on the object are neither those of the state before, nor those of our outgoing patch.

    Our traces can be there already, if only the response to our patch was lost. Absent traces mean nothing: they vanish
    when others replace the whole object, and this must not repeat the handlers.
    """
    after = outgoing.apply_to(before)
    traces, *known = (_get_traces(Body(state), persistence, handlers) for state in (obj, before, after))
    return any(trace is not None and trace not in others for trace, *others in zip(traces, *known, strict=True))


def _get_traces(body: Body, persistence: PersistenceSettings, handlers: Collection[ChangingHandler]) -> list[object]:
    progress = persistence.progress_storage
    records: list[object] = [progress.fetch(key=handler.id, body=body) for handler in handlers]
    return [persistence.diffbase_storage.fetch(body=body), *records]
