"""Filters that flip while daemons and timers run: they are stopped, the objects are released; then started again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Decorator, Operator

FILTERS: dict[str, dict[str, Any]] = {
    "label": {"labels": {"match": "yes"}},
    "label-present": {"labels": {"match": kopf.PRESENT}},
    "label-absent": {"labels": {"skip": kopf.ABSENT}},
    "label-callback": {"labels": {"match": lambda value, **_: value == "yes"}},
    "annotation": {"annotations": {"match": "yes"}},
    "annotation-callback": {"annotations": {"match": lambda value, **_: value == "yes"}},
    "field": {"field": "spec.match"},
    "field-value": {"field": "spec.match", "value": "yes"},
    "field-absent": {"field": "spec.skip", "value": kopf.ABSENT},
    "field-callback": {"field": "spec.match", "value": lambda value, **_: value == "yes"},
    "status-field": {"field": "status.match", "value": "yes"},
    "when": {"when": lambda spec, **_: spec.get("match") == "yes"},
    "any": {"when": kopf.any_([lambda spec, **_: spec.get("match") == "yes", lambda spec, **_: False])},
    "none": {"when": kopf.none_([lambda spec, **_: spec.get("skip") == "yes"])},
}


async def flip(kex: Objects, match: bool, name: str = "obj") -> None:
    values = {"match": "yes" if match else None, "skip": None if match else "yes"}
    metadata = {"labels": values, "annotations": values}
    await kex.merge({"metadata": metadata, "spec": values, "status": values}, name)


async def test_daemons_run_only_while_the_object_matches(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Each of the filters is for an object of its own."""
    for name, options in FILTERS.items():
        labels = {"case": name, **options.get("labels", {})}
        kopf.daemon("kopfexamples", **{**options, "labels": labels}, id=name, param=name)(
            calls.accompanying(lambda param, name, **_: (param, name, "started"), lambda name, **_: (name, "stopped"))
        )
    await operator.start()
    skip = {"skip": "yes"}
    for name in FILTERS:
        await kex.create(name, labels={"case": name, **skip}, annotations=skip, spec=skip, status=skip)
    for n in range(1, 7):
        is_match = n % 2 == 1
        for name in FILTERS:
            await flip(kex, is_match, name)
        await calls.wait_length(n * len(FILTERS))
        await kex.wait_all(lambda obj: bool(get_finalizers(obj)) is is_match, FILTERS)  # noqa: B023
    for name in FILTERS:
        assert [call for call in calls if name in call] == [(name, name, "started"), (name, "stopped")] * 3


@pytest.mark.fastforward
async def test_timers_run_only_while_the_object_matches(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.timer("kopfexamples", interval=10, labels={"match": "yes"})(calls.noting("called"))
    await operator.start_and_create(kex)
    await asyncio.sleep(1000)
    assert calls == []
    for _ in range(3):
        await flip(kex, True)
        await calls.wait_length(5)
        await flip(kex, False)
        await kex.wait(lambda obj: get_finalizers(obj) == [])
        calls.items.clear()
        await asyncio.sleep(1000)
        assert calls == []


@pytest.mark.fastforward
async def test_criteria_are_evaluated_only_when_something_changes(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.daemon("kopfexamples", when=lambda **_: matching)(calls.accompanying("started", "stopped"))
    matching = True
    await operator.start_and_call(kex, calls)
    matching = False
    await asyncio.sleep(10000)
    assert calls == ["started"]
    await kex.merge({"status": {"anything": "at all"}})
    await calls.wait_length(2)
    await kex.wait(lambda obj: get_finalizers(obj) == [])
    await asyncio.sleep(10)  # until the operator knows that, too: that is also a change
    matching = True
    await kex.merge({"status": {"anything": "else"}})
    await calls.wait_length(3)


async def test_a_daemon_that_is_still_terminating_is_not_doubled(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.daemon("kopfexamples", labels={"match": "yes"})
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        await stopped.wait()
        calls.append("stopping")
        await allowed.wait()
        calls.append("stopped")

    allowed = asyncio.Event()
    await operator.start_and_create(kex)
    await flip(kex, True)
    await calls.wait_length(1)
    await flip(kex, False)
    await calls.wait_length(2)
    await flip(kex, True)
    await kex.create("other", labels={"match": "yes"})
    await calls.wait_length(3)
    assert calls == ["started", "stopping", "started"]  # the latter is of the other object
    assert get_finalizers(await kex.get()) == [FINALIZER]
    allowed.set()
    await calls.wait_length(4)
    await kex.merge({"status": {"anything": "at all"}})
    await calls.wait_length(5)
    assert calls.items[3:] == ["stopped", "started"]


async def test_only_those_daemons_that_do_not_match_are_stopped(operator: Operator, kex: Objects, calls: Calls) -> None:
    for id in ("a", "b"):
        kopf.daemon("kopfexamples", id=id, param=id, labels={id: "yes"})(
            calls.accompanying(lambda param, **_: param, lambda param, **_: f"-{param}")
        )

    await operator.start_and_call(kex, calls, labels={"a": "yes", "b": "yes"}, times=2)
    await kex.merge({"metadata": {"labels": {"a": "no"}}})
    await calls.wait_length(3)
    await kex.merge({"metadata": {"labels": {"a": "yes"}}})
    await calls.wait_length(4)
    await kex.merge({"metadata": {"labels": {"b": "no"}}})
    await calls.wait_length(5)
    assert get_finalizers(await kex.get()) == [FINALIZER]
    assert sorted(calls.items[:2]) == ["a", "b"]
    assert calls.items[2:] == ["-a", "a", "-b"]


async def test_objects_that_never_match_are_not_touched(operator: Operator, kex: Objects, calls: Calls) -> None:
    for decorator in (kopf.daemon, kopf.timer):
        decorator("kopfexamples", id=decorator.__name__, labels={"match": "yes"})(calls.noting(lambda name, **_: name))

    await operator.start_and_create(kex, "skipped")
    await kex.merge({"spec": {"field": "new"}}, "skipped")
    await kex.create("matching", labels={"match": "yes"})
    await calls.wait_length(2)
    await kex.delete_and_wait("skipped")
    assert calls == ["matching", "matching"]
    assert all(set(obj["metadata"]).isdisjoint({"annotations", "finalizers"}) for obj in kex.get_history("skipped"))


async def test_losing_the_label_and_the_finalizer_at_once(operator: Operator, kex: Objects, calls: Calls) -> None:
    """There is nothing of ours on the object anymore, but the daemon still runs, and must be stopped."""
    kopf.daemon("kopfexamples", labels={"match": "yes"})(
        calls.accompanying("started", lambda stopped, **_: stopped.reason)
    )
    await operator.start_and_call(kex, calls, labels={"match": "yes"})
    await kex.merge({"metadata": {"labels": {"match": None}, "finalizers": None}})
    await calls.wait_length(2)
    assert kopf.DaemonStoppingReason.FILTERS_MISMATCH in calls[1]


DECORATORS: dict[str, Decorator] = {"daemon": kopf.daemon, "timer": kopf.timer, "delete": kopf.on.delete}


@pytest.mark.parametrize("kept", DECORATORS)
async def test_the_finalizer_stays_as_long_as_any_handler_needs_it(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    kept: str,
) -> None:
    for name, decorator in DECORATORS.items():
        labels = {"kept": "yes"} if name == kept else {"match": "yes"}

        @decorator("kopfexamples", id=name, labels=labels)
        async def fn(**kwargs: Any) -> None:
            if "stopped" in kwargs:
                await kwargs["stopped"].wait()

    kopf.on.update("kopfexamples")(calls.noting("updated"))
    await operator.start_and_handle(kex, labels={"kept": "yes", "match": "yes"})
    await kex.merge({"metadata": {"labels": {"match": None}}, "spec": {"field": "new"}})
    await kex.wait_handled(field="new")
    assert get_finalizers(await kex.get()) == [FINALIZER]
    await kex.merge({"metadata": {"labels": {"kept": None}}})
    await kex.wait(lambda obj: get_finalizers(obj) == [])


@pytest.mark.fastforward
@pytest.mark.parametrize("exit_time", [0, 1, 10])
@pytest.mark.parametrize("kind", [kopf.daemon, kopf.timer])
async def test_the_finalizer_is_removed_if_the_mismatch_is_also_an_update(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    kind: Decorator,
    exit_time: float,
) -> None:
    options = {"interval": 60} if kind is kopf.timer else {}

    @kind("kopfexamples", labels={"matching": "yes"}, **options)
    async def fn(**kwargs: Any) -> None:
        calls.append("begun")
        if "stopped" in kwargs:
            await kwargs["stopped"].wait()
            await asyncio.sleep(exit_time)

    @kopf.on.update("kopfexamples")
    async def update_fn(**_: Any) -> None:
        calls.append("updated")
        await asyncio.sleep(1)

    await operator.start_and_handle(kex, labels={"matching": "yes"})
    assert calls == ["begun"]
    await kex.merge({"metadata": {"labels": {"matching": None}}})
    await kex.wait(lambda obj: not obj["metadata"].get("labels") and not get_finalizers(obj))
    assert calls == ["begun", "updated"]
