"""Private names of the original framework as they are used inside of running operators."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import kopf
from kopf._legacy.context_variables import K8sEvent, cause_var, event_queue_var, handler_var, settings_var
from tests.behaviour.conftest import *  # noqa: F403  # the operator, the cluster, the objects in it
from tests.behaviour.objects import API, Objects
from tests.behaviour.running import Calls, Operator


async def test_the_current_cause(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", registry=registry, id="create_fn")
    def create_fn(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        cause = cause_var.get()
        calls.append((cause.reason, cause.body is body, cause.patch is patch, handler_var.get().id))

    @kopf.on.event("kopfexamples", registry=registry)
    def event_fn(**_: Any) -> None:
        calls.append(cause_var.get("default"))
        with pytest.raises(LookupError):
            cause_var.get()

    await operator.start()
    await kex.create()
    await calls.wait_length(2)
    assert calls == ["default", (kopf.Reason.CREATE, True, True, "create_fn")]


async def test_events_posted_from_other_threads(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    api: API,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", registry=registry)
    def create_fn(body: kopf.Body, **_: Any) -> None:
        def post() -> None:
            event_queue_var.set(queue)
            kopf.info(body, reason="Set", message="in a thread")
            queue.put_nowait(K8sEvent(kopf.build_object_reference(body), "Normal", "Put", "in a thread"))

        assert isinstance(settings_var.get(), kopf.OperatorSettings)
        queue = event_queue_var.get()
        thread = threading.Thread(target=post)
        thread.start()
        thread.join()

    operator.set("posting.enabled", True)
    operator.set("posting.loggers", False)
    await operator.start()
    await kex.create_and_wait()
    await operator.stop()
    assert {event["reason"] for event in await api.list_events()} == {"Set", "Put"}


def test_handlers_in_the_registry(registry: kopf.OperatorRegistry) -> None:
    kopf.on.create("kopfexamples", registry=registry, id="create_fn")(lambda **_: None)
    kopf.on.resume("kopfexamples", registry=registry, id="resume_fn")(lambda **_: None)
    kopf.on.event("kopfexamples", registry=registry, id="event_fn")(lambda **_: None)
    kopf.on.validate("kopfexamples", registry=registry, id="validate_fn")(lambda **_: None)
    kopf.daemon("kopfexamples", registry=registry, id="daemon_fn")(lambda **_: None)
    kopf.timer("kopfexamples", registry=registry, id="timer_fn", interval=1)(lambda **_: None)
    kopf.index("kopfexamples", registry=registry, id="index_fn")(lambda **_: None)
    kopf.on.startup(registry=registry, id="startup_fn")(lambda **_: None)
    expected = {
        "_activities": ["_login", "startup_fn"],
        "_changing": ["create_fn", "resume_fn"],
        "_indexing": ["index_fn"],
        "_spawning": ["daemon_fn", "timer_fn"],
        "_watching": ["event_fn"],
        "_webhooks": ["validate_fn"],
    }
    for name, ids in expected.items():
        with pytest.warns(DeprecationWarning, match=f"OperatorRegistry.{name} is private") as found:
            section = getattr(registry, name)
        assert found[0].filename == __file__
        assert [handler.id for handler in section._handlers] == ids
        assert [handler.id for handler in section.get_all_handlers()] == ids
        count = len(ids)
        section.append(section._handlers[0])
        assert len(section._handlers) == count + 1
    assert not hasattr(registry, "_nonexistent")
