"""What handlers want is refused by the API: those that have succeeded are not repeated, and nothing is lost."""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import kopf
from kopf_cluster.faults.fault_rules import FaultRule
from tests.behaviour.objects import FINALIZER, Objects, Refused, get_progress
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

STATUSES = (400, 403, 413, 422)
"""With which the changes are refused: of one object each."""

Refuse = Callable[[], FaultRule]
Live = Callable[[str, Refuse], Coroutine[Any, Any, None]]
"""How an object lives, and how its changes are refused from then on."""


async def live_all(operator: Operator, logs: Logs, live: Live) -> None:
    """Let objects live, the changes of each of which are refused with one of the statuses; not those of its status."""
    logs.expected.append("it is refused")
    async with asyncio.TaskGroup() as tasks:
        for status in STATUSES:
            name = f"obj{status}"
            refuse = functools.partial(
                operator.cluster.faults.inject,
                status,
                verb="patch",
                resource="kopfstatusexamples",
                path=f"/{name}$",
                message="it is refused",
            )
            tasks.create_task(live(name, refuse))
    assert not logs.find(".*has removed the last handled configuration.*")


async def edit(objects: Objects, name: str, **spec: Any) -> None:
    """Change the spec as an editor does, by a request of another kind than those which are refused."""
    while True:
        obj = await objects.get(name)
        try:
            path = f"/apis/kopf.dev/v1/namespaces/default/kopfstatusexamples/{name}"
            await objects.api.request("PUT", path, {**obj, "spec": {**obj["spec"], **spec}})
            return
        except Refused as e:
            if e.status != 409:
                raise


def by_names() -> collections.defaultdict[str, list[Any]]:
    """The notes of the handlers by the names of the objects."""
    return collections.defaultdict(list)


async def test_handlers_with_statuses_are_not_repeated_while_their_progress_is_refused(
    operator: Operator,
    sub: Objects,
    logs: Logs,
) -> None:
    calls = by_names()

    @kopf.on.create("kopfstatusexamples", id="one")
    async def one(name: str, patch: kopf.Patch, **_: Any) -> str:
        calls[name].append("one")
        patch.status["own"] = len(calls[name])
        return "result"

    @kopf.on.create("kopfstatusexamples", id="two")
    async def two(name: str, **_: Any) -> str:
        calls[name].append("two")
        return "result"

    async def live(name: str, refuse: Refuse) -> None:
        rule = refuse()
        await sub.create(name)
        await logs.wait(".*left alone.*", times=5, name=name)
        assert calls[name] == ["one"]
        operator.cluster.faults.remove(rule)
        obj = await sub.wait_handled(name)
        assert calls[name] == ["one", "two"]
        assert obj["status"] == {"own": 1, "one": "result", "two": "result"}

    await operator.start(watching=("kopfstatusexamples",))
    await live_all(operator, logs, live)


@pytest.mark.parametrize("field", ["", "status.own", "status"])
async def test_their_own_statuses_are_not_news_for_them(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    field: str,
) -> None:
    options: Any = {"field": field} if field else {}
    calls = by_names()

    @kopf.on.update("kopfstatusexamples", id="spy", field="status.other")
    @kopf.on.update("kopfstatusexamples", id="one", **options)
    async def fn(name: str, diff: kopf.Diff, patch: kopf.Patch, **_: Any) -> None:
        calls[name].append(diff)
        patch.status["own"] = "mine"

    async def live(name: str, refuse: Refuse) -> None:
        await sub.create_and_wait(name)
        rule = refuse()
        if field:
            await sub.merge({"status": {"own": "theirs"}}, name, subresource="status")
        else:
            await edit(sub, name, field="edited")
        await logs.wait(".*left alone.*", times=5, name=name)
        assert len(calls[name]) == 1
        operator.cluster.faults.remove(rule)
        await asyncio.sleep(1000)
        assert len(calls[name]) == 1

    kopf.on.create("kopfstatusexamples", id="create")(do_nothing)
    await operator.start(watching=("kopfstatusexamples",))
    await live_all(operator, logs, live)


@pytest.mark.parametrize("during", ["creation", "update"])
async def test_an_edit_that_cures_the_refusal_goes_on_where_it_was(
    operator: Operator,
    sub: Objects,
    logs: Logs,
    during: str,
) -> None:
    calls = by_names()
    kopf.on.create("kopfstatusexamples", id="other", when=lambda **_: during == "update")(do_nothing)
    decorator = kopf.on.create if during == "creation" else kopf.on.update

    @decorator("kopfstatusexamples", id="one", field="spec.one")
    async def one(name: str, patch: kopf.Patch, **_: Any) -> str:
        calls[name].append("one")
        patch.spec["wanted"] = "yes"
        return "result"

    @decorator("kopfstatusexamples", id="two")
    async def two(name: str, spec: kopf.Spec, **_: Any) -> None:
        calls[name].append(("two", spec.get("cure"), spec.get("wanted")))

    async def live(name: str, refuse: Refuse) -> None:
        if during == "update":
            await sub.create_and_wait(name)
            rule = refuse()
            await edit(sub, name, one=1)
        else:
            rule = refuse()
            await sub.create(name, spec={"one": 1})
        await logs.wait(".*left alone.*", times=8, name=name)
        assert calls[name] == ["one"]
        operator.cluster.faults.remove(rule)
        started = now()
        await sub.merge({"spec": {"cure": 1}}, name)
        obj = await sub.wait(
            lambda obj: obj["spec"].get("wanted") and not get_progress(obj) and len(calls[name]) >= 2, name
        )
        assert now() - started < 10
        assert calls[name] == ["one", ("two", 1, "yes")]
        assert obj["status"]["one/spec.one"] == "result"

    await operator.start(watching=("kopfstatusexamples",))
    await live_all(operator, logs, live)


async def test_edits_that_do_not_help_do_not_repeat_the_handlers(operator: Operator, sub: Objects, logs: Logs) -> None:
    calls = by_names()

    @kopf.on.create("kopfstatusexamples", id="one")
    async def one(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls[name].append("create")
        patch.spec["wanted"] = "yes"

    @kopf.on.update("kopfstatusexamples", id="update")
    async def update(name: str, diff: kopf.Diff, **_: Any) -> None:
        calls[name].append(sorted(field for _, field, _, _ in diff))

    async def live(name: str, refuse: Refuse) -> None:
        rule = refuse()
        await sub.create(name)
        await logs.wait(".*left alone.*", times=2, name=name)
        for number in range(3):
            await edit(sub, name, edit=number)
            await asyncio.sleep(10)
        await logs.wait(".*left alone.*", times=6, name=name)
        assert calls[name][:1] == ["create"]
        assert "create" not in calls[name][1:]
        operator.cluster.faults.remove(rule)
        obj = await sub.wait_handled(name, edit=2, wanted="yes")
        assert calls[name].count("create") == 1
        assert ("spec", "edit") in calls[name][-1]
        assert obj["spec"]["wanted"] == "yes"

    await operator.start(watching=("kopfstatusexamples",))
    await live_all(operator, logs, live)


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


@pytest.mark.parametrize("wanted", [{"labels": {"not a label": "!"}}, {"uid": "another one"}], ids=["labels", "uid"])
@pytest.mark.lagging(False)
async def test_a_deletion_is_not_held_forever_by_what_its_handler_wants(
    operator: Operator,
    objects: Objects,
    logs: Logs,
    calls: Calls,
    wanted: dict[str, Any],
) -> None:
    @kopf.on.delete(objects.plural, id="delete")
    async def delete(patch: kopf.Patch, **_: Any) -> str:
        calls.append("delete")
        patch.metadata.update(wanted)
        return "result"

    logs.expected.append("Invalid value")
    await operator.start_and_create(objects)
    await objects.wait(lambda obj: obj["metadata"].get("finalizers"))
    await objects.delete_and_wait()
    assert calls == ["delete"]
    record = await logs.wait("The object is released without the changes that could not be made: .*")
    assert repr(wanted)[1:-1] in record.getMessage()


@pytest.mark.lagging(False)
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
