"""Own writes: our patches come back by the watch stream, sooner or later; nothing is done twice, nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_annotations, is_handled
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.lagging


@pytest.fixture(params=[True, False], ids=["comparable", "incomparable"], autouse=True)
def _versions(request: pytest.FixtureRequest, operator: Operator) -> None:
    """Servers before 1.35 do not let clients compare the resource versions; here, the version is unknown at all."""
    if not request.param:
        operator.cluster.faults.inject(404, path="^/version$")


def declare_handlers(registry: kopf.OperatorRegistry, calls: Calls) -> None:
    for id in ("a", "b", "c"):
        fn = calls.noting(lambda param, spec, **_: (param, spec["field"]))
        kopf.on.delete("kopfexamples", registry=registry, id=f"delete-{id}", param=f"delete-{id}")(fn)
        kopf.on.update("kopfexamples", registry=registry, id=f"update-{id}", param=f"update-{id}")(fn)
        kopf.on.create("kopfexamples", registry=registry, id=f"create-{id}", param=f"create-{id}")(fn)


async def read(kex: Objects, name: str = "obj") -> dict[str, Any]:
    """Wait until the object is handled, with no help of the watch streams: they are silent."""
    while not is_handled(obj := await kex.get(name)):
        await asyncio.sleep(0.005)
    return obj


async def test_every_handler_is_called_once(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    declare_handlers(registry, calls)
    await operator.start()
    names = [f"obj{i}" for i in range(4)]
    await asyncio.gather(*(kex.create(name) for name in names))
    await kex.wait_all_handled(names)
    await asyncio.gather(*(kex.merge({"spec": {"field": "new"}}, name) for name in names))
    for name in names:
        await kex.wait_handled(name, field="new")
    await asyncio.gather(*(kex.delete(name) for name in names))
    for name in names:
        await kex.wait_gone(name)
    assert sorted(calls) == sorted(
        [
            *[(f"create-{id}", "value") for id in "abc" for _ in names],
            *[(f"update-{id}", "new") for id in "abc" for _ in names],
            *[(f"delete-{id}", "new") for id in "abc" for _ in names],
        ]
    )


async def test_silent_streams_do_not_hold_the_handling(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    """The responses to the patches are enough to go on."""
    declare_handlers(registry, calls)

    @kopf.on.create("kopfexamples", registry=registry, id="first")
    async def fn(**_: Any) -> None:
        operator.cluster.faults.silence_watches()

    registry.resources.insert(0, registry.resources.pop())
    await operator.start_and_create(kex)
    await read(kex)
    assert calls == [("create-a", "value"), ("create-b", "value"), ("create-c", "value")]
    operator.cluster.faults.silence_watches(False)
    await kex.change_and_wait(field="new")
    assert calls.items[3:] == [("update-a", "new"), ("update-b", "new"), ("update-c", "new")]


async def test_stale_events_that_come_late_cause_nothing(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    """What the silent stream holds back comes at once when all is done already."""
    declare_handlers(registry, calls)
    await operator.start_and_handle(kex)
    calls.items.clear()
    seen = len(kex.get_history())
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(1)
    operator.cluster.faults.silence_watches()
    await read(kex)
    operator.cluster.faults.silence_watches(False)
    await kex.wait_handled(field="new")
    assert len(kex.get_history()) > seen
    await kex.create_and_wait("another")
    assert calls.items[:3] == [("update-a", "new"), ("update-b", "new"), ("update-c", "new")]
    assert [name for name, _ in calls.items[3:]] == ["create-a", "create-b", "create-c"]


async def test_foreign_changes_between_our_patch_and_its_echo_are_not_lost(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Someone changes the object right after our patch: both come by the stream when it speaks again."""

    @kopf.on.create("kopfexamples")
    async def create_fn(spec: kopf.Spec, **_: Any) -> None:
        calls.append(("create", spec["field"]))
        operator.cluster.faults.silence_watches()

    kopf.on.update("kopfexamples")(
        calls.noting(lambda old, new, **_: ("update", old["spec"]["field"], new["spec"]["field"]))
    )
    await operator.start_and_create(kex)
    await read(kex)
    await kex.merge({"spec": {"field": "theirs"}})
    operator.cluster.faults.silence_watches(False)
    await kex.wait_handled(field="theirs")
    assert calls == [("create", "value"), ("update", "value", "theirs")]


async def test_foreign_changes_before_our_patch_are_not_lost(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Someone changes the object while it is being handled: the handlers of that state finish, then the next one."""

    @kopf.on.create("kopfexamples")
    async def create_fn(spec: kopf.Spec, **_: Any) -> None:
        calls.append(("create", spec["field"]))
        await kex.merge({"spec": {"field": "theirs"}})

    kopf.on.create("kopfexamples", id="second")(calls.noting("second"))
    kopf.on.update("kopfexamples")(
        calls.noting(lambda old, new, **_: ("update", old["spec"]["field"], new["spec"]["field"]))
    )
    await operator.start_and_create(kex)
    await kex.wait_handled(field="theirs")
    assert calls == [("create", "value"), "second", ("update", "value", "theirs")]


async def test_many_foreign_changes_in_the_middle_end_with_the_last_one_handled(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    async def fn(spec: kopf.Spec, **_: Any) -> None:
        await asyncio.sleep(0.003)
        calls.append(spec["field"])

    await operator.start_and_create(kex, spec={"field": 0})
    for number in range(1, 41):
        await kex.merge({"spec": {"field": number}})
    await kex.wait_handled(field=40)
    assert calls[-1] == 40
    assert calls == sorted(set(calls))  # in order, no state twice


@pytest.mark.fastforward
async def test_the_stream_is_trusted_again_if_our_patch_never_comes_back(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The stream is broken; when it is restored, there is already a newer state than the one we have made."""
    faults = operator.cluster.faults

    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        calls.append("created")
        faults.inject(503, verb="list", resource="kopfexamples")
        faults.compact()
        faults.cut_watches()

    kopf.on.update("kopfexamples")(calls.noting(lambda old, new, **_: (old["spec"]["field"], new["spec"]["field"])))
    await operator.start_and_create(kex)
    await read(kex)
    faults.compact()
    await kex.merge({"spec": {"field": "theirs"}})
    faults.replace([rule for rule in faults.rules if rule.verb != "list"])
    started = asyncio.get_running_loop().time()
    await calls.wait_length(2)
    await read(kex)
    assert asyncio.get_running_loop().time() - started < 60
    assert calls == ["created", ("value", "theirs")]


@pytest.mark.fastforward
@pytest.mark.parametrize("timeout", [0, 300])
async def test_how_long_our_patch_is_waited_for(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    timeout: float,
    request: pytest.FixtureRequest,
) -> None:
    """It matters only if it is not known whether the state in the stream is older or newer than our patch."""
    faults, is_comparable = operator.cluster.faults, "incomparable" not in request.node.name

    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        faults.inject(503, verb="list", resource="kopfexamples")
        faults.compact()
        faults.cut_watches()

    kopf.on.update("kopfexamples")(calls.noting(lambda **_: asyncio.get_running_loop().time()))
    operator.set("persistence.consistency_timeout", timeout)
    await operator.start_and_create(kex)
    await read(kex)
    faults.compact()
    await kex.merge({"spec": {"field": "theirs"}})
    faults.replace([rule for rule in faults.rules if rule.verb != "list"])
    started = asyncio.get_running_loop().time()
    await calls.wait_length(1)
    expected = 0 if is_comparable else timeout
    assert expected <= calls[0] - started < expected + 100


async def test_raw_events_are_never_held_back(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    """Not even the stale ones, and not while the object is being handled."""
    logs.expected.append("could not be handled")  # it is changed by others as fast as the operator can patch it

    kopf.on.event("kopfexamples")(
        calls.noting(lambda body, event, **_: (event["type"], body.metadata["resourceVersion"]))
    )

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def fn(**_: Any) -> None:
        await asyncio.sleep(0.01)

    await operator.start_and_create(kex)
    for number in range(10):
        await kex.merge({"spec": {"field": number}})
    await kex.wait_handled(field=9)
    await kex.delete_and_wait()
    await calls.wait(lambda items: items[-1][0] == "DELETED")
    assert calls == [(type_, obj["metadata"]["resourceVersion"]) for type_, obj in kex.get_events()]


async def test_handling_goes_on_when_the_watch_is_broken_in_the_middle(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="a")
    @kopf.on.create("kopfexamples", id="b")
    async def fn(**_: Any) -> None:
        calls.append("called")
        operator.cluster.faults.compact()
        operator.cluster.faults.cut_watches()

    await operator.start_and_create(kex)
    await read(kex)
    await kex.create("another")
    await read(kex, "another")
    assert calls == ["called"] * 4
    assert get_annotations(await kex.get()).keys() == {"kopf.zalando.org/last-handled-configuration"}
