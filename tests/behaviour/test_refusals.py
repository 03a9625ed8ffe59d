"""When the API refuses or fails: the handlers are not repeated, the API is not flooded, the errors are clear."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Objects, get_progress
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


@pytest.mark.lagging(False)
@pytest.mark.parametrize("status", [400, 403, 409, 413, 415, 422])
async def test_a_refused_state_is_reported_once_and_retried_with_growing_delays(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    status: int,
) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting("called", result="result"))
    operator.cluster.faults.inject(status, verb="patch", resource="kopfexamples", message="it is refused")
    logs.expected.append("it is refused")
    await operator.start()
    started = now()
    await kex.create()
    await logs.wait(".*left alone.*", times=8)
    # By default, the delays are the Fibonacci numbers.
    assert 1 + 1 + 2 + 3 + 5 + 8 + 13 <= now() - started <= 40
    errors = logs.get_messages(level=logging.WARNING)  # what is not permitted, is reported once for all objects
    assert len(errors) == 1
    assert "it is refused" in errors[0]
    operator.cluster.faults.clear()
    obj = await kex.wait_handled()
    assert obj["status"] == {"fn": "result"}
    assert calls == ["called"]


@pytest.mark.lagging(False)
async def test_a_refused_state_does_not_go_hot(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting("called"))
    operator.cluster.faults.inject(422, verb="patch", resource="kopfexamples", message="it is refused")
    logs.expected.append("it is refused")
    await operator.start_and_create(kex)
    await asyncio.sleep(4 * 3600)  # of the fast-forwarded time
    # 15 growing delays last for 27 minutes; then it is every 10 minutes.
    assert operator.cluster.counters["patch", "kopfexamples", 422] < 15 + 4 * 6
    assert calls == ["called"]


async def test_oversized_states(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    """Annotations are limited to 256 KB in total by Kubernetes; the last handled configuration is among them."""
    fn = calls.noting(lambda spec, **_: len(spec["field"]))
    kopf.on.update("kopfexamples", id="fn")(fn)
    kopf.on.create("kopfexamples", id="fn")(fn)
    logs.expected.append("[Tt]oo long")
    await operator.start_and_create(kex, spec={"field": "x" * 300_000})
    await logs.wait(".*left alone.*", times=5)
    assert calls == [300_000]
    assert len(logs.get_messages("obj", level=logging.WARNING)) == 1
    # As soon as the state can be stored again, it is handled: either as an update, or as a creation.
    await kex.change_and_wait(field="short")
    assert calls == [300_000, len("short")]


@pytest.mark.parametrize(
    ("fault", "with_fns"),
    [
        ({"status": 500}, False),
        ({"status": 503}, True),
        ({"status": 429, "retry_after": 1}, False),
        ({"action": "disconnect"}, True),
        # The patch is applied, but the connection breaks before it is known; then it is repeated.
        ({"action": "lose-answer"}, False),
        ({"action": "lose-answer"}, True),
    ],
    ids=str,
)
async def test_temporary_failures_of_the_api_are_got_over(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    fault: dict[str, Any],
    with_fns: bool,
) -> None:
    @kopf.on.create("kopfexamples", id="a")
    @kopf.on.create("kopfexamples", id="b")
    async def fn(patch: kopf.Patch, **_: Any) -> str:
        calls.append("called")
        if with_fns:
            patch.fns.append(lambda body: body["spec"].update(field="patched"))
        return "result"

    await operator.start()
    operator.cluster.faults.inject(**fault, verb="patch", resource="kopfexamples", times=5)
    obj = await kex.create_and_wait()
    assert obj["status"] == {"a": "result", "b": "result"}
    assert calls == ["called"] * 2


async def test_exhausted_retries_of_requests_are_continued_as_errors_of_the_object(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting("called"))
    operator.set("networking.error_backoffs", [1, 1])
    operator.set("queueing.error_delays", [100])
    logs.expected.append("left alone for 100 seconds")
    await operator.start()
    operator.cluster.faults.inject(500, verb="patch", resource="kopfexamples", times=7)
    started = now()
    await kex.create_and_wait()
    assert now() - started == pytest.approx(1 + 1 + 100 + 1 + 1 + 100 + 1, abs=3)
    assert calls == ["called"]


async def test_retried_handlers_keep_their_schedule_when_the_state_is_refused(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    """The progress that could not be stored is kept in memory: attempts are counted, delays are obeyed."""

    @kopf.on.create("kopfexamples", retries=3, id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append((retry, round(now() - started)))
        raise kopf.TemporaryError("not yet", delay=1000)

    operator.cluster.faults.inject(422, verb="patch", resource="kopfexamples", message="it is refused")
    logs.expected.append("it is refused")
    await operator.start()
    started = now()
    await kex.create()
    await calls.wait_length(1)
    await asyncio.sleep(500)
    assert len(calls) == 1
    operator.cluster.faults.clear()
    await kex.wait_seen(lambda obj: get_progress(obj))
    await kex.wait_handled()
    assert [retry for retry, _ in calls] == [0, 1, 2]
    assert calls[1][1] == pytest.approx(1000, abs=5)


FULL = {"notes": "x" * 261_900}
"""Annotations with no room for anything else: the limit is 262,144 bytes in total."""


@pytest.mark.lagging(False)
async def test_objects_that_can_never_be_noted_say_so_with_the_cure(
    operator: Operator,
    kex: Objects,
    api: API,
    logs: Logs,
    calls: Calls,
) -> None:
    """The handlers are called once a process; what it means, is said by the log and by an event after each start."""
    kopf.on.create("kopfexamples", id="fn")(calls.noting("called"))
    operator.set("posting.enabled", True)
    operator.set("posting.level", logging.ERROR)
    logs.expected.append("[Tt]oo long")
    await kex.create(annotations=FULL, spec={"field": "y" * 500})
    for attempt in (1, 2):
        await operator.start()
        await logs.wait(".*left alone.*", times=3 * attempt)
        assert calls == ["called"] * attempt
        errors = logs.get_messages("obj", level=logging.WARNING)
        assert len(errors) == attempt
        assert "after a restart, they will be called again" in errors[-1]
        assert "ignored_fields" in errors[-1]
        assert "StatusDiffBaseStorage" in errors[-1]
        await operator.stop()
    assert any("ignored_fields" in event["message"] for event in await api.list_events())
    await kex.merge({"metadata": {"annotations": {"notes": None}}})
    await operator.start()
    await kex.wait_handled()
    assert calls == ["called"] * 3


async def test_annotations_by_handlers_can_be_the_large_ones(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.annotations["notes"] = "x" * 300_000

    logs.expected.append("[Tt]oo long")
    await operator.start_and_create(kex)
    await logs.wait(".*left alone.*full.*Handler 'fn' writes some.*ignored_fields.*StatusDiffBaseStorage.*")


@pytest.mark.lagging(False)
@pytest.mark.parametrize(
    "storages",
    [
        {"diffbase": kopf.AnnotationsDiffBaseStorage(ignored_fields=["spec.field", "metadata.annotations.notes"])},
        {"diffbase": kopf.StatusDiffBaseStorage(), "progress": kopf.StatusProgressStorage()},
    ],
    ids=["ignored", "status"],
)
async def test_the_cures_of_full_annotations(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    storages: dict[str, Any],
) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting("called"))

    for name, storage in storages.items():
        operator.set(f"persistence.{name}_storage", storage)
    await kex.create(annotations=FULL, spec={"field": "y" * 500})
    await operator.start()
    await logs.wait("Creation is processed.*")
    await logs.wait("Handling cycle is finished.*")
    await operator.stop()
    await operator.start_and_create(kex, "other")
    await calls.wait_length(2)
    assert calls == ["called"] * 2  # one of them is for the other one
    assert not logs.get_messages(level=logging.WARNING)


@pytest.mark.lagging(False)
@pytest.mark.parametrize(
    "text",
    [
        "etcdserver: request is too large",
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2098019 vs. 2097152)",
    ],
)
async def test_the_words_of_etcd(operator: Operator, kex: Objects, logs: Logs, text: str) -> None:
    """They come with the status 500, but the next attempt is of no use either."""
    kopf.on.create("kopfexamples", id="fn")(do_nothing)

    operator.cluster.faults.inject(500, verb="patch", resource="kopfexamples", message=text)
    logs.expected.append("left alone")
    await operator.start_and_create(kex)
    await logs.wait(".*left alone.*Make it smaller.*")
    assert operator.cluster.counters["patch", "kopfexamples", 500] == 1
