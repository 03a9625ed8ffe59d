"""Sub-handlers that fail, are retried, or are interrupted: each of those that have succeeded, runs once."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_progress
from tests.behaviour.running import Calls, Logs, Operator, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


async def test_waiting_for_them_counts_as_retries_of_the_parent_but_not_for_its_limits(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", retries=2, timeout=1000, id="parent")
    async def parent(retry: int, **_: Any) -> None:
        calls.append(("parent", retry))
        await kopf.execute(fns={"sub": sub})

    async def sub(retry: int, **_: Any) -> None:
        calls.append(("sub", retry))
        if retry < 5:
            raise kopf.TemporaryError("not yet", delay=10)

    await operator.start_and_handle(kex)
    assert [call for call in calls if call[0] == "sub"] == [("sub", i) for i in range(6)]
    assert [call for call in calls if call[0] == "parent"] == [("parent", i) for i in range(6)]


async def test_their_own_limits(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    def parent(**_: Any) -> None:
        def sub(param: str, retry: int, **_: Any) -> None:
            calls.append((param, retry))
            raise ValueError("boom")

        kopf.subhandler(id="decorated", param="decorated", retries=3, backoff=5)(sub)
        kopf.register(sub, id="registered", param="registered", retries=3, backoff=5)

    await operator.start()
    started = now()
    await kex.create_and_wait()
    for id in ("decorated", "registered"):
        assert [retry for whose, retry in calls if whose == id] == [0, 1, 2]
        assert logs.find(f"Handler 'parent/{id}' failed with an exception and will stop now .*: boom")
    assert now() - started == pytest.approx(10, abs=2)


async def test_a_failed_one_does_not_fail_its_parent(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> str:
        await kopf.execute(fns={"bad": bad, "good": good})
        return "done"

    async def bad(**_: Any) -> None:
        calls.append("bad")
        raise kopf.PermanentError("never")

    async def good(**_: Any) -> None:
        calls.append("good")

    obj = await operator.start_and_handle(kex)
    assert calls == ["bad", "good"]
    assert obj["status"] == {"parent": "done"}
    assert logs.find("Creation is processed: 1 succeeded; 0 failed.")


async def test_a_failure_of_the_parent_does_not_repeat_its_finished_ones(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    async def parent(retry: int, **_: Any) -> None:
        await kopf.execute(fns={"sub": lambda **_: calls.append("sub")})
        calls.append(f"parent {retry}")
        if retry < 2:
            raise ValueError("boom")

    await operator.start_and_handle(kex)
    assert calls == ["sub", "parent 0", "parent 1", "parent 2"]


async def test_restarts_in_the_middle(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    def parent(spec: kopf.Spec, **_: Any) -> None:
        for item in spec["items"]:

            @kopf.subhandler(id=item)
            async def sub(retry: int, item: str = item, **_: Any) -> str:
                calls.append((item, retry))
                if item == "slow" and retry < 2:
                    raise kopf.TemporaryError("not yet", delay=1000)
                return f"of {item}"

    await operator.start_and_create(kex, spec={"items": ["one", "slow", "two"]})
    obj = await kex.wait_seen(lambda obj: {"parent.one", "parent.slow", "parent.two"} <= get_progress(obj).keys())
    assert sorted(get_progress(obj)["parent"]["subrefs"]) == ["parent/one", "parent/slow", "parent/two"]
    await operator.restart()
    await calls.wait_length(4)
    await operator.restart()
    obj = await kex.wait_handled()
    assert sorted(calls) == [("one", 0), ("slow", 0), ("slow", 1), ("slow", 2), ("two", 0)]
    assert obj["status"] == {"parent/one": "of one", "parent/slow": "of slow", "parent/two": "of two"}


async def test_ones_that_are_not_declared_anymore_are_forgotten_in_the_end(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The new version of the operator has other sub-handlers; the progress of the older ones is cleaned up too."""
    ids = ["old", "slow"]

    @kopf.on.create("kopfexamples", id="parent")
    def parent(**_: Any) -> None:
        for id in ids:

            @kopf.subhandler(id=id)
            async def sub(retry: int, id: str = id, **_: Any) -> None:
                calls.append((id, retry))
                if id == "slow" and not retry:
                    raise kopf.TemporaryError("not yet", delay=1000)

    await operator.start_and_create(kex)
    await kex.wait_seen(lambda obj: {"parent.old", "parent.slow"} <= get_progress(obj).keys())
    await operator.stop()
    ids[:] = ["slow", "new"]
    await operator.start()
    await kex.wait_handled()  # with no progress left
    assert calls == [("old", 0), ("slow", 0), ("new", 0), ("slow", 1)]


async def test_the_deletion_overtakes_them(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        await kopf.execute(fns={"sub": sub})

    async def sub(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=10 * 24 * 3600)

    kopf.on.delete("kopfexamples")(calls.noting("deleted"))
    await operator.start_and_create(kex)
    await kex.wait_seen(lambda obj: "parent.sub" in get_progress(obj))
    started = now()
    await kex.delete_and_wait()
    assert calls == ["deleted"]
    assert now() - started < 100


async def test_other_handlers_go_before_a_parent_that_is_called_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The default lifecycle prefers the least retried ones, and going on with the sub-handlers is a retry."""

    @kopf.on.create("kopfexamples", id="parent")
    async def parent(retry: int, **_: Any) -> None:
        calls.append(f"parent {retry}")
        await kopf.execute(fns={"a": sub, "b": sub})

    async def sub(**_: Any) -> None:
        calls.append("sub")

    kopf.on.create("kopfexamples", id="other")(calls.noting("other"))
    await operator.start_and_handle(kex)
    assert calls == ["parent 0", "sub", "other", "parent 1", "sub"]
