"""What handlers want is refused by the API: those that have succeeded are not repeated, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf_cluster.faults.fault_rules import FaultRule
from tests.behaviour.objects import FINALIZER, Objects, Refused, get_progress
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

Refuse = Callable[[], FaultRule]


@pytest.fixture(params=[400, 403, 413, 422])
def refuse(operator: Operator, logs: Logs, request: pytest.FixtureRequest) -> Refuse:
    """Refuse all changes of the objects themselves from now on, but not those of their statuses."""
    logs.expected.append("it is refused")
    return lambda: operator.cluster.faults.inject(
        request.param, verb="patch", resource="kopfstatusexamples", path="/obj$", message="it is refused"
    )


async def edit(objects: Objects, **spec: Any) -> None:
    """Change the spec as an editor does, by a request of another kind than those which are refused."""
    while True:
        obj = await objects.get()
        try:
            path = "/apis/kopf.dev/v1/namespaces/default/kopfstatusexamples/obj"
            await objects.api.request("PUT", path, {**obj, "spec": {**obj["spec"], **spec}})
            return
        except Refused as e:
            if e.status != 409:
                raise


async def test_handlers_with_statuses_are_not_repeated_while_their_progress_is_refused(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    calls: Calls,
    refuse: Refuse,
) -> None:
    @kopf.on.create("kopfstatusexamples", id="one")
    async def one(patch: kopf.Patch, **_: Any) -> str:
        calls.append("one")
        patch.status["own"] = len(calls)
        return "result"

    kopf.on.create("kopfstatusexamples", id="two")(calls.noting("two", result="result"))
    await operator.start(watching=("kopfstatusexamples",))
    rule = refuse()
    await sub.create()
    await logs.wait(".*left alone.*", times=5)
    assert calls == ["one"]
    operator.cluster.faults.remove(rule)
    obj = await sub.wait_handled()
    assert calls == ["one", "two"]
    assert obj["status"] == {"own": 1, "one": "result", "two": "result"}
    assert not logs.find(".*has removed the last handled configuration.*")


@pytest.mark.parametrize("field", ["", "status.own", "status"])
async def test_their_own_statuses_are_not_news_for_them(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    calls: Calls,
    refuse: Refuse,
    field: str,
) -> None:
    options: Any = {"field": field} if field else {}

    @kopf.on.update("kopfstatusexamples", id="spy", field="status.other")
    @kopf.on.update("kopfstatusexamples", id="one", **options)
    async def fn(diff: kopf.Diff, patch: kopf.Patch, **_: Any) -> None:
        calls.append(diff)
        patch.status["own"] = "mine"

    kopf.on.create("kopfstatusexamples", id="create")(do_nothing)
    await operator.start_and_handle(sub)
    rule = refuse()
    if field:
        await sub.merge({"status": {"own": "theirs"}}, subresource="status")
    else:
        await edit(sub, field="edited")
    await logs.wait(".*left alone.*", times=5)
    assert len(calls) == 1
    operator.cluster.faults.remove(rule)
    await asyncio.sleep(1000)
    assert len(calls) == 1


@pytest.mark.parametrize("during", ["creation", "update"])
async def test_an_edit_that_cures_the_refusal_goes_on_where_it_was(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    calls: Calls,
    refuse: Refuse,
    during: str,
) -> None:
    kopf.on.create("kopfstatusexamples", id="other", when=lambda **_: during == "update")(do_nothing)

    decorator = kopf.on.create if during == "creation" else kopf.on.update

    @decorator("kopfstatusexamples", id="one", field="spec.one")
    async def one(patch: kopf.Patch, **_: Any) -> str:
        calls.append("one")
        patch.spec["wanted"] = "yes"
        return "result"

    decorator("kopfstatusexamples", id="two")(
        calls.noting(lambda spec, **_: ("two", spec.get("cure"), spec.get("wanted")))
    )
    await operator.start(watching=("kopfstatusexamples",))
    if during == "update":
        await sub.create_and_wait()
        rule = refuse()
        await edit(sub, one=1)
    else:
        rule = refuse()
        await sub.create(spec={"one": 1})
    await logs.wait(".*left alone.*", times=8)
    assert calls == ["one"]
    operator.cluster.faults.remove(rule)
    started = now()
    await sub.merge({"spec": {"cure": 1}})
    obj = await sub.wait(lambda obj: obj["spec"].get("wanted") and not get_progress(obj) and len(calls) >= 2)
    assert now() - started < 10
    assert calls == ["one", ("two", 1, "yes")]
    assert obj["spec"]["wanted"] == "yes"
    assert obj["status"]["one/spec.one"] == "result"
    assert not logs.find(".*has removed the last handled configuration.*")


async def test_edits_that_do_not_help_do_not_repeat_the_handlers(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    calls: Calls,
    refuse: Refuse,
) -> None:
    @kopf.on.create("kopfstatusexamples", id="one")
    async def one(patch: kopf.Patch, **_: Any) -> None:
        calls.append("create")
        patch.spec["wanted"] = "yes"

    kopf.on.update("kopfstatusexamples", id="update")(
        calls.noting(lambda diff, **_: sorted(field for _, field, _, _ in diff))
    )
    await operator.start(watching=("kopfstatusexamples",))
    rule = refuse()
    await sub.create()
    await logs.wait(".*left alone.*", times=2)
    for number in range(3):
        await edit(sub, edit=number)
        await asyncio.sleep(10)
    await logs.wait(".*left alone.*", times=6)
    assert calls.items[:1] == ["create"]
    assert "create" not in calls.items[1:]
    operator.cluster.faults.remove(rule)
    obj = await sub.wait_handled(edit=2, wanted="yes")
    assert calls.items.count("create") == 1
    assert ("spec", "edit") in calls.items[-1]
    assert obj["spec"]["wanted"] == "yes"


async def test_a_deletion_is_not_held_by_what_was_refused_before(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfstatusexamples", id="create")
    async def create(patch: kopf.Patch, **_: Any) -> None:
        calls.append("create")
        patch.metadata["labels"] = {"not a label": "!"}

    kopf.on.delete("kopfstatusexamples", id="delete")(calls.noting("delete"))
    logs.expected.append("not a label")
    await operator.start_and_create(sub)
    await logs.wait(".*left alone.*", times=8)
    started = now()
    await sub.delete_and_wait()
    assert now() - started < 10
    assert calls == ["create", "delete"]


async def test_a_deletion_is_not_held_forever_by_what_its_handler_wants(
    operator: Operator,
    objects: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.delete(objects.plural, id="delete")
    async def delete(patch: kopf.Patch, **_: Any) -> str:
        calls.append("delete")
        patch.metadata["labels"] = {"not a label": "!"}
        return "result"

    logs.expected.append("not a label")
    await operator.start_and_create(objects)
    await objects.wait(lambda obj: obj["metadata"].get("finalizers"))
    await objects.delete_and_wait()
    assert calls == ["delete"]
    record = await logs.wait("The object is released without the changes that could not be made: .*")
    assert "not a label" in record.getMessage()


async def test_a_deletion_is_not_held_forever_by_changes_that_are_too_large(
    operator: Operator,
    objects: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    """The status of the refusal is 500, as for failures of the server. The object stays because of others."""

    @kopf.on.delete(objects.plural, id="delete")
    async def delete(patch: kopf.Patch, **_: Any) -> None:
        calls.append("delete")
        patch.spec["field"] = "x" * 2_000_000

    logs.expected.append("etcdserver: request is too large")
    await operator.start_and_create(objects, finalizers=["example.com/other"])
    await objects.wait(lambda obj: FINALIZER in obj["metadata"]["finalizers"])
    await objects.delete()
    await objects.wait(lambda obj: FINALIZER not in obj["metadata"]["finalizers"])
    assert calls == ["delete"]
    record = await logs.wait("The object is released without the changes that could not be made: .*")
    assert len(record.getMessage()) < 2000
