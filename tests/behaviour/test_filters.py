"""Filters: objects that match nothing are not touched; objects can start and stop matching at any time."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_annotations, get_finalizers
from tests.behaviour.running import Calls, Decorator, Logs, Operator

FILTERS: dict[str, dict[str, Any]] = {
    "label": {"labels": {"match": "yes"}},
    "label-present": {"labels": {"match": kopf.PRESENT}},
    "label-absent": {"labels": {"skip": kopf.ABSENT}},
    "label-callback": {"labels": {"match": lambda value, **_: value == "yes"}},
    "annotation": {"annotations": {"match": "yes"}},
    "when": {"when": lambda spec, **_: spec.get("match") == "yes"},
    "when-all": {"when": kopf.all_([lambda spec, **_: True, lambda spec, **_: spec.get("match") == "yes"])},
    "when-not": {"when": kopf.not_(lambda spec, **_: spec.get("skip") == "yes")},
}
MATCHING: dict[str, Any] = {
    "labels": {"match": "yes"},
    "annotations": {"match": "yes"},
    "spec": {"field": "value", "match": "yes"},
}
SKIPPED: dict[str, Any] = {
    "labels": {"skip": "yes"},
    "annotations": {"skip": "yes"},
    "spec": {"field": "value", "skip": "yes"},
}


@pytest.mark.parametrize("options", FILTERS.values(), ids=FILTERS.keys())
async def test_objects_that_match_nothing_are_not_touched(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    options: dict[str, Any],
) -> None:
    for decorator in (kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.event):

        @decorator("kopfexamples", id=decorator.__name__, param=decorator.__name__, **options)
        def fn(name: str, param: str, **_: Any) -> None:
            if param != "event":
                calls.append((name, param))

    await operator.start_and_create(kex, "skipped", **SKIPPED)
    await kex.create_and_wait("matching", **MATCHING)
    await kex.merge({"spec": {"field": "new"}}, "skipped")
    await kex.change_and_wait("matching", field="new")
    await kex.delete("skipped")
    await kex.delete_and_wait("matching")
    assert calls == [("matching", "create"), ("matching", "update"), ("matching", "delete")]
    for obj in kex.get_history("skipped"):
        assert get_finalizers(obj) == []
        assert get_annotations(obj) == {"skip": "yes"}
        assert "status" not in obj
    assert logs.get_messages("skipped") == []


async def test_objects_that_match_nothing_make_no_requests(operator: Operator, kex: Objects) -> None:
    kopf.on.create("kopfexamples", labels={"match": "yes"})(lambda **_: None)
    await kex.create_all(f"obj{i}" for i in range(20))
    operator.cluster.reset_counters()
    await operator.start_and_create(kex, "matching", **MATCHING)
    await kex.wait_handled("matching")
    assert operator.cluster.counters["patch", "kopfexamples", 200] == 1


async def test_objects_that_start_matching_are_taken_for_new(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", labels={"match": "yes"})
    @kopf.on.update("kopfexamples", labels={"match": "yes"})
    @kopf.on.delete("kopfexamples", labels={"match": "yes"})
    def fn(reason: kopf.Reason, **_: Any) -> None:
        calls.append(reason.value)

    await operator.start_and_create(kex)
    await kex.merge({"metadata": {"labels": {"match": "yes"}}})
    obj = await kex.wait_handled()
    assert get_finalizers(obj) == [FINALIZER]
    assert calls == ["create"]


async def test_objects_that_stop_matching_are_released(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", labels={"match": "yes"})
    @kopf.on.delete("kopfexamples", labels={"match": "yes"})
    def fn(reason: kopf.Reason, **_: Any) -> None:
        calls.append(reason.value)

    obj = await operator.start_and_handle(kex, labels={"match": "yes"}, finalizers=["example.com/theirs"])
    assert get_finalizers(obj) == ["example.com/theirs", FINALIZER]
    await kex.merge({"metadata": {"labels": {"match": None}}})
    await kex.wait(lambda obj: get_finalizers(obj) == ["example.com/theirs"])
    await kex.delete()
    await kex.release_and_wait()
    assert calls == ["create"]


async def test_objects_that_stopped_matching_while_the_operator_was_down_are_released(
    operator: Operator,
    kex: Objects,
) -> None:
    kopf.on.delete("kopfexamples", labels={"match": "yes"})(lambda **_: None)
    await operator.start_and_handle(kex, labels={"match": "yes"})
    await operator.stop()
    await kex.merge({"metadata": {"labels": {"match": None}}})
    await operator.start()
    await kex.wait(lambda obj: get_finalizers(obj) == [])


@pytest.mark.fastforward
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.event], ids=lambda decorator: decorator.__name__)
async def test_operators_with_no_deletion_handlers_remove_the_finalizers_that_are_left_by_older_versions(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    decorator: Decorator,
) -> None:
    decorator("kopfexamples", labels={"match": "yes"})(lambda **_: None)
    await operator.start_and_create(kex, "skipped", finalizers=[FINALIZER])
    await kex.create("matching", labels={"match": "yes"}, finalizers=[FINALIZER])
    await kex.wait_all(lambda obj: get_finalizers(obj) == [], ("skipped", "matching"))
    await logs.wait("Removing the finalizer, as there are no handlers requiring it.", times=2)


async def test_filters_flip_in_the_middle_of_the_handling(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The remaining handlers that do not match anymore are not called, and the handling ends."""

    @kopf.on.create("kopfexamples", id="first")
    async def first(**_: Any) -> None:
        calls.append("first")
        await kex.merge({"metadata": {"labels": {"match": None}}})

    kopf.on.create("kopfexamples", labels={"match": "yes"}, id="second")(calls.noting("second"))
    kopf.on.create("kopfexamples", id="third")(calls.noting("third"))
    await operator.start_and_handle(kex, labels={"match": "yes"})
    assert calls == ["first", "third"]
