"""Custom resources with strict schemas: what they do not know is dropped, what is wrong is refused."""
from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, Objects, watch
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.usefixtures("in_memory")]


@pytest.fixture(params=[True, False], ids=["subresource", "regular"])
async def strict(request: pytest.FixtureRequest, operator: Operator, api: API) -> AsyncIterator[Objects]:
    """The objects of a kind that has one integer in its spec, and nothing in its status but one more integer."""
    crd = make_crd("StrictExample", "strictexamples", status=request.param)
    field = {"type": "object", "properties": {"field": {"type": "integer", "maximum": 100}}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object", "properties": {"spec": field, "status": field}}
    operator.cluster.apply(crd)
    async with watch(api, "StrictExample", "strictexamples") as objects:
        yield objects


async def test_results_that_are_dropped_by_the_schema_do_not_repeat_the_handling(
        operator: Operator, strict: Objects, calls: Calls, logs: Logs,
) -> None:
    for id in ("a", "b"):
        @kopf.on.create("strictexamples", id=id)
        @kopf.on.update("strictexamples", id=id)
        async def fn(reason: kopf.Reason, patch: kopf.Patch, **_: Any) -> str:
            calls.append(reason.value)
            patch.status["field"] = 1
            return "result"

    obj = await operator.start_and_handle(strict, spec={"field": 1, "unknown": "dropped"})
    assert obj["spec"] == {"field": 1}
    assert obj["status"] == {"field": 1}
    await strict.change_and_wait(field=2)
    await strict.create_and_wait("another", spec={"field": 1})
    assert calls == ["create", "create", "update", "update", "create", "create"]
    warnings = logs.get_messages(level=logging.WARNING)
    assert [warning.split(" is dropped")[0] for warning in warnings] == ["The field 'status.a'", "The field 'status.b'"]


async def test_progress_in_a_status_that_is_dropped_is_not_needed(
        operator: Operator, strict: Objects, calls: Calls,
) -> None:
    """By default, the progress is in the annotations, which are not subject to schemas."""
    kopf.on.create("strictexamples")(
        calls.noting(lambda retry, **_: retry, error=kopf.TemporaryError("not yet", delay=100), times=3))
    await operator.start_and_handle(strict, spec={"field": 1})
    assert calls == [0, 1, 2, 3]
    assert all("status" not in obj for obj in strict.get_history())


@pytest.mark.parametrize("stanza", ["spec", "status"])
async def test_refused_patches_of_handlers_are_reported_once_and_never_go_hot(
        operator: Operator, strict: Objects, calls: Calls, logs: Logs, stanza: str,
) -> None:
    @kopf.on.create("strictexamples")
    async def fn(patch: kopf.Patch, name: str, **_: Any) -> None:
        calls.append(name)
        patch.setdefault(stanza, {})["field"] = 101 if name == "bad" else 99

    logs.expected.append(rf"{stanza}\.field")
    await operator.start_and_create(strict, "bad", spec={"field": 1})
    await logs.wait(".*left alone.*", times=6)
    (error,) = logs.get_messages("bad", level=logging.WARNING)
    assert "101" in error
    assert "100" in error
    await strict.create("good", spec={"field": 1})
    obj = await strict.wait(lambda obj: obj.get(stanza, {}).get("field") == 99, "good")
    assert obj
    assert calls == ["bad", "good"]
    # It can still be deleted, of course.
    await strict.delete_and_wait("bad")
