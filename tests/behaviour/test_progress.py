"""The state on the objects: the progress of the handlers, and the last handled configuration."""

from __future__ import annotations

import asyncio
import datetime
import json
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import LAST_HANDLED, PREFIX, Objects, get_annotations, get_essence, get_progress
from tests.behaviour.running import Calls, Decorator, Operator

pytestmark = pytest.mark.lagging


def get_moments(kex: Objects, name: str = "obj") -> list[dict[str, dict[str, Any]]]:
    """The progress as it was at each moment, with no repetitions, with the timestamps checked and left out."""
    moments: list[dict[str, dict[str, Any]]] = []
    for obj in kex.get_history(name):
        progress = get_progress(obj)
        for record in progress.values():
            for field in ("started", "stopped", "delayed"):
                if field in record:
                    text = record.pop(field)
                    assert len(text) == len("2026-11-20T23:53:38.049971+00:00")
                    assert datetime.datetime.fromisoformat(text).utcoffset() == datetime.timedelta(0)
                    record[field] = ...
            if record.get("purpose") == "create" and "digest" in record:
                assert len(record["digest"]) == 12
                record["digest"] = ...
            if "baseline" in record:
                assert json.loads(record["baseline"]) == {"spec": obj["spec"]}
                record["baseline"] = ...
        started = {key: record for key, record in progress.items() if record["retries"]}
        if not moments or moments[-1] != started:
            moments.append(started)
    return moments


async def test_progress_is_saved_after_each_handler_and_removed_in_the_end(operator: Operator, kex: Objects) -> None:
    kopf.on.create("kopfexamples", id="first")(lambda **_: None)

    @kopf.on.create("kopfexamples", id="second")
    def second(**_: Any) -> None:
        raise kopf.PermanentError("never")

    kopf.on.create("kopfexamples")(lambda **_: None)
    await operator.start_and_handle(kex)
    success = {
        "started": ...,
        "stopped": ...,
        "purpose": "create",
        "retries": 1,
        "success": True,
        "failure": False,
        "digest": ...,
    }
    failure = success | {"success": False, "failure": True, "message": "never", "exception": "PermanentError"}
    first = success | {"baseline": ...}
    assert get_moments(kex) == [{}, {"first": first}, {"first": first, "second": failure}, {}]


@pytest.mark.fastforward
async def test_progress_of_retried_handlers(operator: Operator, kex: Objects) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(retry: int, **_: Any) -> None:
        if retry < 2:
            raise kopf.TemporaryError(f"attempt {retry}", delay=100)

    await operator.start_and_handle(kex)
    state = {
        "started": ...,
        "delayed": ...,
        "purpose": "create",
        "success": False,
        "failure": False,
        "baseline": ...,
        "exception": "TemporaryError",
    }
    assert get_moments(kex) == [
        {},
        {"fn": state | {"retries": 1, "message": "attempt 0"}},
        {"fn": state | {"retries": 2, "message": "attempt 1"}},
        {},
    ]
    records = [get_progress(obj)["fn"] for obj in kex.get_history() if "fn" in get_progress(obj)]
    assert len({record["started"] for record in records}) == 1
    started, *delayed = (
        datetime.datetime.fromisoformat(text)
        for text in dict.fromkeys(
            [records[0]["started"], *(record["delayed"] for record in records if "delayed" in record)]
        )
    )
    assert [(time - started).total_seconds() for time in delayed] == pytest.approx([100, 200], abs=2)


@pytest.mark.parametrize(
    "decorator",
    [kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume],
    ids=lambda decorator: decorator.__name__,
)
async def test_the_purpose_is_the_reason(operator: Operator, kex: Objects, calls: Calls, decorator: Decorator) -> None:
    decorator("kopfexamples", id="fn")(
        calls.noting(lambda retry, **_: retry, error=kopf.TemporaryError("not yet", delay=0), times=1)
    )
    reason = decorator.__name__
    essence = json.dumps({"spec": {"field": "old" if reason == "update" else "value"}}, separators=(",", ":")) + "\n"
    annotations = {} if reason == "create" else {LAST_HANDLED: essence}
    finalizers = ["kopf.zalando.org/KopfFinalizerMarker"] if reason == "delete" else []
    await kex.create(annotations=annotations, finalizers=finalizers)
    if reason == "delete":
        await kex.delete()
    await operator.start()
    await calls.wait_length(2)
    obj = await kex.wait_seen(lambda obj: "fn" in get_progress(obj)) if reason == "resume" else None
    if reason == "delete":
        await kex.wait_gone()
    elif obj is None:
        await kex.wait_handled()
    purposes = {get_progress(obj)["fn"]["purpose"] for obj in kex.get_history() if "fn" in get_progress(obj)}
    assert purposes == {reason}


async def test_the_last_handled_configuration_is_written_in_the_end_only(operator: Operator, kex: Objects) -> None:
    @kopf.on.create("kopfexamples", id="create1")
    @kopf.on.create("kopfexamples", id="create2")
    @kopf.on.update("kopfexamples", id="update1")
    @kopf.on.update("kopfexamples", id="update2")
    def fn(**_: Any) -> None:
        pass

    obj = await operator.start_and_handle(
        kex, labels={"l": "v"}, annotations={"a": "w"}, status={"s": "t"}, finalizers=["example.com/f"]
    )
    assert get_annotations(obj) == {
        "a": "w",
        LAST_HANDLED: '{"spec":{"field":"value"},"metadata":{"labels":{"l":"v"},"annotations":{"a":"w"}}}\n',
    }
    await kex.change_and_wait(field="new")
    for obj in kex.get_history():
        if get_progress(obj):
            assert get_essence(obj) is None or get_essence(obj)["spec"] == {"field": "value"}


async def test_unhandled_changes_are_remembered_too(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The next change is compared to the latest state, not to the state when a handler was called the last time."""
    kopf.on.update("kopfexamples", field="spec.field", id="fn")(lambda old, new, **_: calls.append((old, new)))
    await operator.start_and_handle(kex)
    await kex.change_and_wait(other="thing")
    await kex.change_and_wait(field="new")
    assert calls == [("value", "new")]


async def test_nothing_is_written_when_nothing_is_to_be_done(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.resume("kopfexamples", id="fn")
    def fn(**_: Any) -> None:
        calls.append("called")

    handled = await operator.start_and_handle(kex)
    operator.cluster.reset_counters()
    await kex.merge({"status": {"field": "value"}})
    await operator.restart()
    await calls.wait_length(2)
    await kex.create_and_wait("another")
    # One patch is ours, one is for the other object; for this object, nothing but its resuming happened.
    assert operator.cluster.counters["patch", "kopfexamples", 200] == 2
    assert get_annotations(await kex.get()) == get_annotations(handled)


@pytest.mark.fastforward
async def test_progress_of_other_frameworks_and_versions_is_continued(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """What was begun by the original framework, is finished here."""
    kopf.on.create("kopfexamples", id="done")(calls.noting("done"))
    kopf.on.create("kopfexamples", id="failed")(calls.noting("failed"))

    @kopf.on.create("kopfexamples", id="retried")
    async def retried(retry: int, runtime: datetime.timedelta, **_: Any) -> None:
        assert runtime.total_seconds() == pytest.approx(300 + 200, abs=5)
        calls.append(("retried", retry, round(asyncio.get_running_loop().time() - started)))

    kopf.on.create("kopfexamples", id="fresh")(calls.noting(lambda retry, **_: ("fresh", retry)))
    now = datetime.datetime.now(datetime.UTC)
    before = (now - datetime.timedelta(seconds=300)).isoformat()
    after = (now + datetime.timedelta(seconds=200)).isoformat()
    base = {"started": before, "purpose": "create", "retries": 1, "success": False, "failure": False}
    records = {
        "done": base | {"stopped": before, "success": True},
        "failed": base | {"stopped": before, "failure": True, "message": "never"},
        "retried": base | {"delayed": after, "retries": 4, "message": "not yet"},
        "fresh": base | {"retries": 0},
    }
    await kex.create(annotations={f"{PREFIX}/{id}": json.dumps(record) for id, record in records.items()})
    await operator.start()
    started = asyncio.get_running_loop().time()
    await kex.wait_handled()
    assert calls == [("fresh", 0), ("retried", 4, pytest.approx(200, abs=5))]


GARBAGE = ["", "{", "[]", "null", "123", '"text"']
BROKEN = [
    *((key, garbage) for key in (f"{PREFIX}/fn", LAST_HANDLED) for garbage in GARBAGE),
    (f"{PREFIX}/fn", '{"retries":"x"}'),
    (f"{PREFIX}/fn", '{"started":"x"}'),
]


async def test_broken_state_is_as_good_as_none(operator: Operator, kex: Objects, calls: Calls) -> None:
    names = {f"obj{number}": {key: garbage} for number, (key, garbage) in enumerate(BROKEN)}
    kopf.on.create("kopfexamples", id="fn")(calls.noting(lambda name, retry, **_: (name, retry)))
    await operator.start()
    for name, state in names.items():
        await kex.create(name, annotations=state)
    for name in names:
        await kex.wait(lambda obj: get_annotations(obj) == {LAST_HANDLED: '{"spec":{"field":"value"}}\n'}, name)
    assert sorted(calls) == sorted((name, 0) for name in names)
