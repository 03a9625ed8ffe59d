"""What users do to what they were given, is not taken for what the server has said."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_essence
from tests.behaviour.running import Calls, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

SPEC: dict[str, Any] = {"field": "value", "list": [1], "template": {"metadata": {"labels": {"l": "v"}}, "spec": {}}}


def spoil(body: kopf.Body, spec: kopf.Spec, **kwargs: Any) -> None:
    """Do everything that is possible with plain lists & dicts inside of the read-only views."""
    kopf.adopt(spec["template"], owner=body)
    spec["template"]["spec"]["added"] = True
    body["spec"]["list"].append(2)
    body["metadata"].setdefault("labels", {})["spoilt"] = "yes"
    for name in ("old", "new"):
        if kwargs.get(name):
            kwargs[name]["spec"]["list"].append(3)
            kwargs[name].setdefault("metadata", {})["labels"] = {"spoilt": "yes"}


async def test_nothing_leaks_from_the_handlers_of_changes(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="one")
    @kopf.on.create("kopfexamples", id="two")
    @kopf.on.update("kopfexamples", id="three")
    @kopf.on.resume("kopfexamples", id="four")
    async def fn(reason: kopf.Reason, spec: kopf.Spec, **kwargs: Any) -> None:
        calls.append((str(reason), [*spec["list"]]))
        spoil(spec=spec, **kwargs)

    obj = await operator.start_and_handle(kex, spec=SPEC)
    assert get_essence(obj) == {"spec": SPEC}
    assert calls == [("create", [1])] * 2
    obj = await kex.change_and_wait(field="new")
    assert get_essence(obj) == {"spec": {**SPEC, "field": "new"}}
    assert calls == [("create", [1])] * 2 + [("update", [1])]
    await operator.restart()
    await calls.wait_length(4)
    await operator.restart()
    await calls.wait_length(5)
    assert calls == [("create", [1])] * 2 + [("update", [1])] + [("resume", [1])] * 2


async def test_nothing_leaks_from_other_handlers(operator: Operator, kex: Objects, calls: Calls) -> None:
    def check(**kwargs: Any) -> bool:
        spoil(**kwargs)
        return True

    @kopf.index("kopfexamples")
    def index(**kwargs: Any) -> Any:
        spoil(**kwargs)
        return kwargs["spec"]

    @kopf.on.event("kopfexamples")
    def event(**kwargs: Any) -> None:
        spoil(**kwargs)

    @kopf.daemon("kopfexamples")
    async def daemon(stopped: kopf.AsyncDaemonStopperChecker, **kwargs: Any) -> None:
        spoil(**kwargs)
        await stopped.wait()

    @kopf.timer("kopfexamples", interval=0.1)
    async def timer(**kwargs: Any) -> None:
        spoil(**kwargs)

    fn = calls.noting(lambda reason, spec, **_: (str(reason), spec["field"]))
    kopf.on.update("kopfexamples", when=check)(fn)
    kopf.on.create("kopfexamples", when=check)(fn)
    await operator.start_and_create(kex, spec=SPEC)
    for value in ("a", "b", "c"):
        await kex.change_and_wait(field=value)
    obj = await kex.get()
    assert get_essence(obj) == {"spec": {**SPEC, "field": "c"}}
    assert [call for call in calls if call[0] == "update"][-1] == ("update", "c")
    await kex.delete_and_wait()


async def test_nothing_leaks_from_the_values_patched_by_other_handlers(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    given: list[dict[str, Any]] = []

    @kopf.on.create("kopfexamples", id="patching")
    async def patching(patch: kopf.Patch, **_: Any) -> None:
        given.append({"list": [1]})
        patch.spec["added"] = given[0]

    @kopf.on.create("kopfexamples", id="spoiling")
    async def spoiling(body: kopf.Body, new: Any, **_: Any) -> None:
        body["spec"]["added"]["list"].append(2)
        new["spec"]["added"]["list"].append(3)
        given[0]["list"].append(4)

    @kopf.on.create("kopfexamples", id="last")
    async def last(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("Not yet.", delay=1)

    kopf.on.update("kopfexamples")(calls.noting(lambda diff, **_: diff))
    obj = await operator.start_and_handle(kex)
    assert get_essence(obj)["spec"]["added"] == {"list": [1]}
    assert calls == []
