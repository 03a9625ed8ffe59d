"""Objects that no handler is for, with all of the filters considered, are not touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, FINALIZER, Objects, get_essence, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

UNMATCHED: list[tuple[Callable[..., Callable[..., Any]], dict[str, Any]]] = [
    *(
        (declare, {"field": "spec.absent"})
        for declare in (kopf.on.field, kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.daemon)
    ),
    *(
        (declare, {"field": "spec.field", "value": "other"})
        for declare in (kopf.on.create, kopf.on.update, kopf.on.delete)
    ),
    (kopf.on.create, {"field": "spec.field", "value": kopf.ABSENT}),
    (kopf.on.delete, {"field": "spec.field", "value": lambda value, **_: value == "other"}),
    (kopf.on.field, {"field": "status.phase"}),
]


async def test_objects_without_the_field_or_the_value_are_not_touched(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    for number, (declare, filters) in enumerate(UNMATCHED):
        declare("kopfexamples", **filters, id=f"fn{number}")(lambda **_: calls.append("called"))
    kopf.on.event("kopfexamples", id="spy")(lambda name, **_: calls.append(name))
    await operator.start_and_create(kex, "one")
    await kex.create("two")
    await kex.merge({"spec": {"other": 1}}, "one")
    await calls.wait(lambda items: items.count("one") == 2 and items.count("two") == 1)
    await kex.delete_and_wait("one")
    assert "called" not in calls.items
    assert operator.cluster.counters["patch", "kopfexamples", 200] == 1  # by the test itself
    assert all("spy" in message for message in logs.get_messages("one"))


async def test_secrets_are_not_copied_to_their_annotations(operator: Operator, api: API, calls: Calls) -> None:
    kopf.on.field("secrets", field="data.x")(lambda **_: calls.append("called"))
    operator.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"y": "eA=="}})
    await operator.start(watching=("secrets",))
    operator.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t"}, "data": {"x": "eA=="}})
    await calls.wait_length(1)
    secret = await api.request("GET", "/api/v1/namespaces/default/secrets/s")
    assert "annotations" not in secret["metadata"]


async def test_a_field_that_appears_later_is_a_creation(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", field="spec.late", id="create_fn")(
        lambda old, new, **_: calls.append(("create", old, new))
    )
    kopf.on.update("kopfexamples", field="spec.late", id="update_fn")(
        lambda old, new, **_: calls.append(("update", old, new))
    )
    await operator.start_and_create(kex)
    await kex.merge({"spec": {"late": 1}})
    await kex.wait_handled()
    assert calls == [("create", None, 1)]
    await kex.merge({"spec": {"late": None}})
    await calls.wait_length(2)
    assert calls == [("create", None, 1), ("update", 1, None)]


async def test_the_loss_of_the_field_is_handled_and_then_the_object_is_let_alone(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.delete("kopfexamples", field="spec.guarded")(lambda **_: calls.append("deleted"))
    await operator.start_and_create(kex, spec={"guarded": True})
    await kex.wait(lambda obj: get_finalizers(obj) == [FINALIZER] and get_essence(obj))
    await kex.merge({"spec": {"guarded": None}})
    await kex.wait(lambda obj: not get_finalizers(obj))
    await kex.delete_and_wait()
    assert calls == []
