"""Results delivery: what handlers return gets to the status of the object, under their ids."""

from __future__ import annotations

from typing import Any

import kopf
from tests.behaviour.objects import Objects, get_progress
from tests.behaviour.running import Calls, Logs, Operator

VALUES: list[Any] = [100, 0, -1.5, True, False, "text", "", [1, "two", None], [], {"field": {"deep": "value"}}]


async def test_any_json_value_can_be_returned(operator: Operator, objects: Objects) -> None:
    """Each by an object of its own; nothing is stored if nothing is returned."""
    values = {"nothing": None} | {f"obj{number}": value for number, value in enumerate(VALUES)}
    kopf.on.create(objects.plural, id="create_fn")(lambda name, **_: values[name])
    await operator.start(watching=(objects.plural,))
    await objects.create_all(values)
    assert "status" not in await objects.wait_handled("nothing")
    for name in values.keys() - {"nothing"}:
        status = (await objects.wait_handled(name))["status"]
        assert repr(status) == repr({"create_fn": values[name]})


async def test_results_of_several_handlers_and_of_fields(operator: Operator, objects: Objects) -> None:
    kopf.on.create(objects.plural, id="create_1")(lambda **_: 100)

    @kopf.on.create(objects.plural, id="create_2")
    async def create_2(uid: str, **_: Any) -> dict[str, str]:
        return {"uid": uid}

    kopf.on.field(objects.plural, field="spec.field", id="field_fn")(lambda new, **_: {"became": new})
    kopf.on.update(objects.plural, field="spec.field", id="update_fn")(lambda new, **_: new)
    obj = await operator.start_and_handle(objects)
    uid = obj["metadata"]["uid"]
    assert obj["status"] == {"create_1": 100, "create_2": {"uid": uid}, "field_fn/spec.field": {"became": "value"}}

    obj = await objects.change_and_wait(field="new")
    assert obj["status"] == {
        "create_1": 100,
        "create_2": {"uid": uid},
        "field_fn/spec.field": {"became": "new"},
        "update_fn/spec.field": "new",
    }


async def test_results_replace_the_previous_ones_by_merging(operator: Operator, objects: Objects) -> None:
    @kopf.on.create(objects.plural, id="fn")
    @kopf.on.update(objects.plural, id="fn")
    def fn(spec: kopf.Spec, **_: Any) -> Any:
        return spec["result"]

    obj = await operator.start_and_handle(objects, spec={"result": {"a": 1, "b": [1]}})
    assert obj["status"] == {"fn": {"a": 1, "b": [1]}}
    await objects.merge({"spec": {"result": {"a": None, "b": [2]}}})
    obj = await objects.wait_handled()
    await objects.wait(lambda obj: obj["status"]["fn"]["b"] == [2])
    assert (await objects.get())["status"] == {"fn": {"a": 1, "b": [2]}}


async def test_results_join_what_the_handler_has_put_there_or_replace_it(
    operator: Operator,
    objects: Objects,
) -> None:
    owns: dict[str, Any] = {"number": 5, "text": "text", "list": [1], "nothing": None}
    owns["dict"] = {"own": {"a": 1}, "both": {"a": 1}}

    @kopf.on.create(objects.plural, id="fn")
    def fn(name: str, patch: kopf.Patch, **_: Any) -> Any:
        patch.status["fn"] = owns[name]
        return {"returned": 2, "both": {"b": 2}}

    await operator.start(watching=(objects.plural,))
    await objects.create_all(owns)
    for name in owns:
        added = {"own": {"a": 1}} if name == "dict" else {}
        assert (await objects.wait_handled(name))["status"] == {"fn": {**added, "returned": 2, "both": {"b": 2}}}


async def test_results_replace_what_is_no_object(operator: Operator, objects: Objects, calls: Calls) -> None:
    """The status of an object is always an object; the handlers are not repeated because of that."""

    def fn(patch: kopf.Patch, **_: Any) -> str:
        calls.append("called")
        patch["status"] = "text"
        return "result"

    kopf.on.create(objects.plural, id="creating")(fn)
    kopf.on.delete(objects.plural, id="deleting")(fn)
    kopf.timer(objects.plural, id="timer", interval=1000)(fn)
    await operator.start_and_create(objects)
    obj = await objects.wait(lambda obj: obj.get("status", {}).keys() == {"creating", "timer"})
    assert obj["status"] == {"creating": "result", "timer": "result"}
    await objects.delete_and_wait()
    assert len(calls) == 3


async def test_the_result_is_there_as_soon_as_the_success_is_recorded(operator: Operator, objects: Objects) -> None:
    kopf.on.create(objects.plural, id="first")(lambda **_: 1)
    kopf.on.create(objects.plural, id="second")(lambda status, **_: {"seen": status["first"]})
    obj = await operator.start_and_handle(objects)
    assert obj["status"] == {"first": 1, "second": {"seen": 1}}
    for state in objects.get_history():
        if "first" in get_progress(state):
            assert state["status"]["first"] == 1


async def test_results_of_raw_event_handlers(operator: Operator, objects: Objects) -> None:
    kopf.on.event(objects.plural, id="event_fn")(lambda event, **_: "added" if event["type"] == "ADDED" else None)
    await operator.start_and_create(objects)
    obj = await objects.wait(lambda obj: obj.get("status"))
    assert obj["status"] == {"event_fn": "added"}
    assert not obj["metadata"].get("annotations")


async def test_unserialisable_results_are_reported_and_the_handler_is_not_repeated(
    operator: Operator,
    objects: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    values = {"object": object(), "iterator": {1, 2}.__iter__(), "nan": float("nan")}

    @kopf.on.create(objects.plural, id="create_fn")
    def create_fn(name: str, **_: Any) -> Any:
        calls.append(name)
        return values[name]

    await operator.start(watching=(objects.plural,))
    await objects.create_all(values)
    for name in values:
        obj = await objects.wait_handled(name)
        assert obj.get("status", {}).get("create_fn") is None
        is_reported = any("create_fn" in message for message in logs.get_messages(name, level=40))
        assert is_reported or name == "nan"  # NaN is a null in JSON
    assert sorted(calls) == sorted(values)


async def test_results_of_the_deletion_are_visible_while_others_block_it(operator: Operator, objects: Objects) -> None:
    kopf.on.delete(objects.plural, id="delete_fn")(lambda **_: "deleted")
    await operator.start_and_handle(objects, finalizers=["example.com/theirs"])
    await objects.delete()
    obj = await objects.wait(
        lambda obj: obj["metadata"]["finalizers"] == ["example.com/theirs"] and "deletionTimestamp" in obj["metadata"]
    )
    assert obj["status"] == {"delete_fn": "deleted"}
    await objects.release()
    await objects.wait_gone()
