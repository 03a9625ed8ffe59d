"""Changes that handlers make within a cycle belong to that cycle; those of others do not."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_essence
from tests.behaviour.running import Calls, Operator, do_nothing

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


def set_own(patch: kopf.Patch, way: str) -> None:
    match way:
        case "merged":
            patch.spec["own"] = "mine"
        case "transformed":
            patch.fns.append(lambda body: body["spec"].update(own="mine"))
        case "metadata":
            patch.metadata.labels["own"] = "mine"
            patch.metadata.annotations["example.com/own"] = "mine"


WAYS = ("merged", "transformed", "metadata")
"""Each is that of the object of its name."""


@pytest.mark.parametrize("restart", [False, True])
async def test_own_patches_in_a_creation_are_not_an_update(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    restart: bool,
) -> None:
    @kopf.on.create("kopfexamples", id="one")
    async def one(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append((name, "one"))
        set_own(patch, name)

    @kopf.on.create("kopfexamples", id="two")
    async def two(name: str, retry: int, **_: Any) -> None:
        calls.append((name, "two"))
        if restart and retry < 1:
            raise kopf.TemporaryError("not yet", delay=30)

    kopf.on.update("kopfexamples", id="update")(calls.noting(lambda name, diff, **_: (name, diff)))
    await operator.start()
    await kex.create_all(WAYS)
    if restart:
        await calls.wait_length(2 * len(WAYS))
        await operator.restart()
    for name in WAYS:
        await kex.wait(lambda obj: get_essence(obj) is not None, name)
        await kex.merge({"spec": {"marker": 1}}, name)
    await calls.wait_length((4 if restart else 3) * len(WAYS))
    expected = ["one", "two", *(["two"] if restart else []), (("add", ("spec", "marker"), None, 1),)]
    for name in WAYS:
        assert [what for who, what in calls if who == name] == expected


async def test_foreign_edits_in_a_creation_are_an_update_afterwards(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="one")
    async def one(patch: kopf.Patch, **_: Any) -> None:
        calls.append("one")
        patch.spec["own"] = "mine"
        await kex.merge({"spec": {"foreign": "theirs"}})

    kopf.on.create("kopfexamples", id="two")(calls.noting("two"))
    kopf.on.update("kopfexamples", id="update")(calls.noting(lambda diff, **_: diff))
    await operator.start_and_create(kex)
    await kex.wait_handled(foreign="theirs", own="mine")
    assert calls == ["one", "two", (("add", ("spec", "foreign"), None, "theirs"),)]


async def test_own_patches_in_an_update_do_not_repeat_the_others(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="create")(do_nothing)
    kopf.on.update("kopfexamples", id="one")(calls.noting("one"))

    @kopf.on.update("kopfexamples", id="two")
    async def two(patch: kopf.Patch, **_: Any) -> None:
        calls.append("two")
        patch.spec["own"] = "mine"

    kopf.on.update("kopfexamples", id="three")(calls.noting(lambda diff, **_: sorted(field for _, field, _, _ in diff)))
    await operator.start_and_handle(kex)
    await kex.merge({"spec": {"field": "new"}})
    await kex.wait_handled(field="new", own="mine")
    assert calls == ["one", "two", [("spec", "field"), ("spec", "own")]]


@pytest.mark.parametrize("field", [None, "spec", "metadata"])
async def test_own_patches_in_an_update_do_not_repeat_the_subhandlers_of_others(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    field: str | None,
) -> None:
    @kopf.on.update("kopfexamples", id="parent")
    def parent(**_: Any) -> None:
        for item in ("a", "b"):
            kopf.subhandler(id=item, field=field)(calls.noting(lambda *, name, item=item, **_: (name, item)))

    @kopf.on.update("kopfexamples", id="other")
    def other(name: str, patch: kopf.Patch, retry: int, **_: Any) -> None:
        calls.append((name, "other"))
        set_own(patch, name)
        if retry < 1:
            raise kopf.TemporaryError("not yet", delay=0)

    await operator.start()
    for name in WAYS:
        await kex.create_and_wait(name)
        await kex.merge({"spec": {"marker": 1}, "metadata": {"labels": {"marker": "1"}}}, name)
    for name in WAYS:
        await kex.wait(lambda obj: get_essence(obj) is not None and "own" in str(get_essence(obj)), name)
        assert sorted(what for who, what in calls if who == name) == ["a", "b", "other", "other"]


async def test_overlapping_fields_miss_no_changes(operator: Operator, kex: Objects, calls: Calls) -> None:
    for field in ("status.deep.one", "status", "status.deep", "metadata.finalizers", "status.deep.one.deepest"):
        kopf.on.field("kopfexamples", id="fn", field=field, param=field)(calls.noting(lambda param, **_: param))

    await operator.start_and_create(kex, status={"other": 1, "deep": {"one": {"deepest": 1}, "two": 2}})
    fields = {"status", "status.deep", "status.deep.one", "status.deep.one.deepest"}
    await calls.wait(lambda items: set(items) == fields)
    for change, changed in [
        ({"other": 2}, {"status"}),
        ({"deep": {"two": 3}}, {"status", "status.deep"}),
        ({"deep": {"one": {"x": 3}}}, {"status", "status.deep", "status.deep.one"}),
        ({"deep": {"one": {"deepest": 3}}}, fields),
    ]:
        calls.items.clear()
        await kex.merge({"status": change})
        await calls.wait(lambda items, changed=changed: set(items) == changed)  # type: ignore[misc]
