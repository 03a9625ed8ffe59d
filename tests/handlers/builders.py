"""Short ways to make handlers and causes, with everything irrelevant for a test filled in."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from kopf._handlers.causes import Change, ChangingCause, ResourceCause, WatchingCause
from kopf._handlers.current_handler import SubhandlingContext, current_cause, current_subhandling
from kopf._handlers.handlers import ActivityHandler, ChangingHandler, Handler, WatchingHandler
from kopf._values.bodies import Body
from kopf._values.diffs import diff
from kopf._values.ids import HandlerId
from kopf._values.patches import Patch
from kopf._values.reasons import Activity, Reason
from kopf._values.resources import Resource

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
logger = logging.getLogger("tests")


@contextlib.contextmanager
def executing(body: Body, subhandling: SubhandlingContext | None = None) -> Iterator[None]:
    """As if a handler is being executed for the object, inside of the block."""
    cause_token = current_cause.set(make_resource_cause(body))
    token = None if subhandling is None else current_subhandling.set(subhandling)
    try:
        yield
    finally:
        current_cause.reset(cause_token)
        if token is not None:
            current_subhandling.reset(token)


def do_nothing(**_: Any) -> None: ...


def make_handler(id: str = "fn", fn: Any = do_nothing, **options: Any) -> Handler:
    return Handler(id=HandlerId(id), fn=fn, **options)


def make_activity_handler(id: str = "fn", fn: Any = do_nothing, **options: Any) -> ActivityHandler:
    return ActivityHandler(**{"id": HandlerId(id), "fn": fn, "activity": Activity.STARTUP, **options})


def make_watching_handler(id: str = "fn", fn: Any = do_nothing, **options: Any) -> WatchingHandler:
    return WatchingHandler(**{"id": HandlerId(id), "fn": fn, "selector": None, **options})


def make_changing_handler(id: str = "fn", fn: Any = do_nothing, **options: Any) -> ChangingHandler:
    return ChangingHandler(**{"id": HandlerId(id), "fn": fn, "selector": None, "reason": None, **options})


def make_resource_cause(body: Mapping[str, Any], **fields: Any) -> ResourceCause:
    return ResourceCause(**_complete(body, fields))


def make_watching_cause(body: Mapping[str, Any], type: Any = "ADDED", **fields: Any) -> WatchingCause:
    fields = _complete(body, fields)
    return WatchingCause(**fields, type=type)


def make_changing_cause(
    body: Mapping[str, Any],
    reason: Reason = Reason.CREATE,
    *,
    old: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ChangingCause:
    """Make a cause; the new state is the spec, unless it is given."""
    after = {"spec": dict(body.get("spec") or {})} if new is None else new
    essences: Any = {"old": old, "new": after, "diff": diff(old, after)}
    return ChangingCause(**_complete(body, fields), reason=reason, get_change=lambda: Change(**essences))


def _complete(body: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    defaults = {
        "logger": logger,
        "memo": object(),
        "indices": {},
        "resource": RESOURCE,
        "body": body if isinstance(body, Body) else Body({"metadata": {}, **body}),
        "patch": Patch(),
    }
    return {**defaults, **fields}
