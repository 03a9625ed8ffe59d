"""
Conditions by children: a reconciler says on its object whether all that it has yielded is there, and is ready.

The conditions are the ones of ``kstatus``: ``Ready`` always; ``Reconciling`` and ``Stalled`` only while they are true.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from kopf._handlers.attempts import Attempt
from kopf._handlers.causes import ChangingCause
from kopf._handlers.conditions import Condition, Conditions, conditions
from kopf._handlers.handlers import Handler
from kopf._handlers.retry_policy import judge
from kopf._kits.readiness import NotReadyError, require_ready
from kopf._values.bodies import Body


class CallInterruptedError(Exception):
    """The call ends in the middle. Nothing is said: it is not known how the call would have ended."""


@contextlib.contextmanager
def reporting(cause: ChangingCause, handler: Handler, attempt: Attempt, children: Collection[Body]) -> Iterator[None]:
    """Say how the attempt in this block has ended; ``children`` are the ones applied by then."""
    found = conditions(cause.patch, cause.body)
    try:
        yield
        require_ready(*children)
    except CallInterruptedError:
        raise
    except NotReadyError as e:
        _report(found, Condition(False, "ChildrenNotReady", str(e)), "Reconciling")
        raise
    except Exception as e:
        reason = type(e).__name__.strip("_") or "Error"
        is_final = judge(handler, attempt, e, default_backoff=0).outcome.final
        _report(found, Condition(False, reason, str(e)), "Stalled" if is_final else "Reconciling")
        raise
    _report(found, Condition(True, "ChildrenReady"))


def _report(found: Conditions, condition: Condition, state: str = "") -> None:
    if "Ready" in found.changed:  # the users say it themselves
        return
    found["Ready"] = condition
    for type in ("Reconciling", "Stalled"):
        if type == state:
            found[type] = Condition(True, condition.reason, condition.message)
        elif type in found:
            del found[type]
