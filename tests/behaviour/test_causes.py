"""The causes: what happens to an object, and which handlers are called for that."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_essence
from tests.behaviour.running import Calls, Operator


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    """One handler of each kind, named by its kind."""
    for decorator in (kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume):
        decorator("kopfexamples", id=decorator.__name__, param=decorator.__name__)(
            lambda param, reason, **_: calls.append((param, str(reason.value)))
        )


async def test_existing_objects_handled_before_are_resumed(operator: Operator, kex: Objects, calls: Calls) -> None:
    await operator.start_and_handle(kex)
    calls.items.clear()
    await operator.restart()
    await calls.wait_length(1)
    assert calls == [("resume", "resume")]


async def test_objects_are_created_and_updated_and_deleted(operator: Operator, kex: Objects, calls: Calls) -> None:
    await operator.start_and_handle(kex)
    assert calls == [("create", "create")]
    await kex.change_and_wait(field="new")
    assert calls == [("create", "create"), ("update", "update")]
    await kex.delete_and_wait()
    assert calls == [("create", "create"), ("update", "update"), ("delete", "delete")]


@pytest.mark.parametrize("stanza", ["labels", "annotations"])
async def test_labels_and_annotations_are_essential(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    stanza: str,
) -> None:
    await operator.start_and_handle(kex)
    await kex.merge({"metadata": {stanza: {"some": "value"}}})
    await kex.wait(lambda obj: (get_essence(obj) or {}).get("metadata") == {stanza: {"some": "value"}})
    assert calls == [("create", "create"), ("update", "update")]


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"field": "value"}},
        {"metadata": {"finalizers": ["example.com/theirs", "kopf.zalando.org/KopfFinalizerMarker"]}},
        {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}},
    ],
    ids=["status", "finalizers", "kubectl"],
)
async def test_other_changes_are_not_updates(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    patch: dict[str, Any],
) -> None:
    await operator.start_and_handle(kex)
    await kex.merge(patch)
    await kex.change_and_wait(field="new")
    assert calls == [("create", "create"), ("update", "update")]


async def test_objects_deleted_before_the_start_are_deleted_and_not_resumed(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    await operator.start_and_handle(kex)
    await operator.stop()
    await kex.delete()
    calls.items.clear()
    await operator.start()
    await kex.wait_gone()
    assert calls == [("delete", "delete")]


async def test_resuming_is_possible_for_deleted_objects_on_demand(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.resume("kopfexamples", deleted=True)(
        lambda reason, **_: calls.append(("resume deleted", str(reason.value)))
    )
    await operator.find_and_handle(kex)
    await operator.stop()
    await kex.delete()
    calls.items.clear()
    await operator.start()
    await kex.wait_gone()
    assert sorted(calls) == [("delete", "delete"), ("resume deleted", "delete")]


async def test_objects_created_and_deleted_while_the_operator_runs_are_never_resumed(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    await operator.start_and_handle(kex)
    operator.cluster.faults.cut_watches()
    await kex.change_and_wait(field="new")
    await kex.delete_and_wait()
    assert [name for name, _ in calls] == ["create", "update", "delete"]


async def test_resuming_happens_once_in_the_life_of_an_operator(operator: Operator, kex: Objects, calls: Calls) -> None:
    await operator.find_and_handle(kex)
    # The history is forgotten, and so everything is listed anew.
    operator.cluster.faults.compact()
    operator.cluster.faults.cut_watches()
    await kex.change_and_wait(field="new")
    assert calls == [("create", "create"), ("resume", "create"), ("update", "update")]


async def test_changes_back_and_forth_before_the_handling_are_no_change(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    await operator.start_and_handle(kex)
    await operator.stop()
    calls.items.clear()
    await kex.merge({"spec": {"field": "new"}})
    await kex.merge({"spec": {"field": "value"}})
    await operator.start()
    await calls.wait_length(1)
    await kex.create_and_wait("another")
    assert calls == [("resume", "resume"), ("create", "create")]
