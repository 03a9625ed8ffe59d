"""
Throttling: after errors of the framework or the API, an object is left alone, the longer the more errors in a row.

The delays come from ``settings.queueing.error_delays``. Errors of handlers do not count: they have a retry policy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kopf._controller.changes.object_memory import Carried
from kopf._values.objects import KubeObject


def get_delay(error_delays: Iterable[float], errors: int) -> float:
    """Return the delay after so many errors in a row, in seconds."""
    delay = 0.0
    for delay in itertools.islice(error_delays, errors):  # noqa: B007
        pass
    return delay


def count_failure(memory: Carried, *, is_conflict: bool) -> bool:
    """
    Count the failure of a pass, and return whether it is excused.

    The first conflict in a row is: the object has changed meanwhile, and its fresh state comes soon.
    """
    is_excused = is_conflict and not memory.conflicts
    if is_excused:
        memory.conflicts += 1
    else:
        memory.errors += 1
        memory.conflicts = memory.conflicts if is_conflict else 0
    return is_excused


def is_overtaking(state: KubeObject, obj: KubeObject) -> bool:
    """Tell if the state is worth a retry after a failure with the object: a deletion, or another spec."""
    is_deletion = state.head.deletionTimestamp is not None and obj.head.deletionTimestamp is None
    return is_deletion or state.head.generation != obj.head.generation
