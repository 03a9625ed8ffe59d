"""Storages of the state as configured: in the status, under other prefixes, in several places at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import FINALIZER, LAST_HANDLED, Objects, get_annotations, get_progress
from tests.behaviour.running import Calls, Operator

BASE = {"started": "2020-01-01T00:00:00.000000+00:00", "purpose": "create", "retries": 1}
SUCCESS = {**BASE, "stopped": "2020-01-01T00:00:01.000000+00:00", "success": True, "failure": False}


@pytest.fixture
def handled(calls: Calls) -> None:
    """Several handlers, so that their progress has to be stored."""
    for id in ("a", "b", "c"):

        @kopf.on.create("kopfexamples", id=id, param=id)
        @kopf.on.create("kopfstatusexamples", id=id, param=id)
        def fn(param: str, **_: Any) -> None:
            calls.append(param)


@pytest.mark.usefixtures("handled")
async def test_in_the_status(operator: Operator, objects: Objects, calls: Calls) -> None:
    operator.set("persistence.progress_storage", kopf.StatusProgressStorage(field="status.my.progress"))
    operator.set("persistence.diffbase_storage", kopf.StatusDiffBaseStorage(field="status.my.last"))
    await operator.start_and_create(objects)
    obj = await objects.wait(lambda obj: "last" in obj.get("status", {}).get("my", {}))
    assert calls == ["a", "b", "c"]
    assert json.loads(obj["status"]["my"]["last"]) == {"spec": {"field": "value"}}
    assert not obj["status"]["my"].get("progress")
    assert not get_annotations(obj)
    progresses = [
        state["status"]["my"]["progress"]
        for state in objects.get_history()
        if state.get("status", {}).get("my", {}).get("progress")
    ]
    assert [sorted(key for key in progress if "~" not in key) for progress in progresses] == [["a"], ["a", "b"]]
    await objects.merge({"spec": {"field": "new"}})
    await objects.wait(lambda obj: json.loads(obj["status"]["my"]["last"]) == {"spec": {"field": "new"}})


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("write", range(1, 10))
@pytest.mark.simulation(crds=make_crd("KopfStatusExample", "kopfstatusexamples", status=True), operator=False)
async def test_crashes_between_the_writes_of_the_status_and_the_rest(
    simulation: Simulation, write: int, is_mixed: bool
) -> None:
    """The changes by the handlers are on the object before their records are."""

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        in_status, in_annotations = kopf.StatusProgressStorage(), kopf.AnnotationsProgressStorage()
        storages = kopf.MultiProgressStorage([in_annotations, in_status])
        settings.persistence.progress_storage = storages if is_mixed else in_status
        settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage()

    @kopf.on.create("kopfstatusexamples", id="merging")
    def merging(patch: kopf.Patch, **_: Any) -> str:
        patch.spec["merged"] = "yes"
        return "done"

    @kopf.on.create("kopfstatusexamples", id="transforming")
    def transforming(patch: kopf.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["spec"].update(transformed="yes"))
        patch.fns.append(lambda body: body.setdefault("status", {}).update(transformed="yes"))

    @kopf.on.create("kopfstatusexamples", id="last")
    def last(patch: kopf.Patch, **_: Any) -> str:
        patch.metadata.labels["last"] = "yes"
        return "done"

    simulation.crash_after(write=write, restart=True)
    await simulation.restart()
    manifest = {"apiVersion": "kopf.dev/v1", "kind": "KopfStatusExample", "metadata": {"name": "obj"}, "spec": {"x": 1}}
    await simulation.apply(manifest)
    await simulation.settle()
    obj = await simulation.get("kopfstatusexamples", "obj")
    assert obj["spec"] == {"x": 1, "merged": "yes", "transformed": "yes"}
    assert obj["metadata"]["labels"] == {"last": "yes"}
    kopf_status = obj["status"].pop("kopf")
    assert "last-handled-configuration" in kopf_status
    assert not kopf_status.get("progress")
    assert obj["status"] == {"merging": "done", "last": "done", "transformed": "yes"}


@pytest.mark.usefixtures("handled")
async def test_two_operators_with_different_prefixes_do_not_disturb_each_other(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.update("kopfexamples", registry=registry)(lambda diff, **_: calls.append(diff))
    kopf.on.delete("kopfexamples", registry=registry)(lambda **_: calls.append("deleted"))
    another = Operator(operator.cluster, registry)
    for prefix, each in (("op1.example.com", operator), ("op2.example.com", another)):
        each.set("persistence.finalizer", f"{prefix}/finalizer")
        each.set("persistence.progress_storage", kopf.AnnotationsProgressStorage(prefix=prefix))
        each.set("persistence.diffbase_storage", kopf.AnnotationsDiffBaseStorage(prefix=prefix))
        await each.start()
    try:
        keys = {
            "op1.example.com/last-handled-configuration",
            "op1.example.com/kopf-managed",
            "op2.example.com/last-handled-configuration",
            "op2.example.com/kopf-managed",
        }
        await kex.create()
        await kex.wait(lambda obj: get_annotations(obj).keys() == keys)
        await kex.merge({"spec": {"field": "new"}})
        await kex.wait(
            lambda obj: all(
                json.loads(get_annotations(obj)[key])["spec"] == {"field": "new"}
                for key in keys
                if key.endswith("configuration")
            )
        )
        await kex.delete_and_wait()
    finally:
        await another.stop()
    diff = (("change", ("spec", "field"), "value", "new"),)
    assert sorted(map(str, calls)) == sorted([*"abcabc", str(diff), str(diff), "deleted", "deleted"])


@pytest.mark.usefixtures("handled")
async def test_transition_between_storages(operator: Operator, kex: Objects, calls: Calls) -> None:
    storages = [
        kopf.StatusDiffBaseStorage(field="status.diff-base"),
        kopf.AnnotationsDiffBaseStorage(prefix="kopf.zalando.org", key="last-handled-configuration"),
    ]
    await operator.start_and_handle(kex, "old")
    await operator.stop()
    operator.set("persistence.diffbase_storage", kopf.MultiDiffBaseStorage(storages))
    calls.items.clear()
    obj = await operator.start_and_handle(kex, "new")
    assert calls == ["a", "b", "c"]  # for the new object only
    assert json.loads(obj["status"]["diff-base"]) == {"spec": {"field": "value"}}
    obj = await kex.change_and_wait("old", field="new")
    assert json.loads(obj["status"]["diff-base"]) == {"spec": {"field": "new"}}
    assert calls == ["a", "b", "c"]


@pytest.mark.usefixtures("handled")
async def test_progress_left_in_the_status_by_older_versions_is_read_and_removed(
    operator: Operator,
    objects: Objects,
    calls: Calls,
) -> None:
    status = {"kopf": {"progress": {"a": SUCCESS}}, "other": "kept"}
    await objects.create(status=status)
    await objects.merge({"status": status}, subresource="status" if "status" in objects.plural else "")
    await operator.start(watching=(objects.plural,))
    await objects.wait_handled()
    obj = await objects.get()
    assert calls == ["b", "c"]
    assert obj["status"]["other"] == "kept"
    assert not (obj["status"].get("kopf") or {}).get("progress")


async def test_ignored_fields(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.update("kopfexamples")(lambda diff, **_: calls.append(diff))
    storage = kopf.AnnotationsDiffBaseStorage(ignored_fields=["spec.noise", "metadata.labels.noise"])
    operator.set("persistence.diffbase_storage", storage)
    await operator.start_and_create(kex, spec={"field": "value", "noise": 1})
    await kex.wait(lambda obj: LAST_HANDLED in get_annotations(obj))
    await kex.merge({"spec": {"noise": 2}})
    await kex.merge({"metadata": {"labels": {"noise": "x"}}})
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(1)
    assert calls == [(("change", ("spec", "field"), "value", "new"),)]


@pytest.mark.usefixtures("handled")
async def test_own_storages_of_users(operator: Operator, kex: Objects, calls: Calls) -> None:
    """As if the state was in an external database."""
    records: dict[tuple[str | None, str], kopf.ProgressRecord] = {}

    class DatabaseStorage(kopf.ProgressStorage):
        def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
            return records.get((body.metadata.uid, key))

        def store(
            self,
            *,
            key: kopf.HandlerId,
            record: kopf.ProgressRecord,
            body: kopf.Body,
            patch: kopf.Patch,
        ) -> None:
            calls.append(f"store {key}")
            records[body.metadata.uid, key] = record

        def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None:
            records.pop((body.metadata.uid, key), None)

        def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
            pass

        def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
            return essence

    operator.set("persistence.progress_storage", DatabaseStorage())
    await operator.start_and_handle(kex, finalizers=[FINALIZER])
    assert [call for call in calls if not call.startswith("store")] == ["a", "b", "c"]
    assert {"store a", "store b"} <= set(calls)
    assert not records
    assert not any(get_progress(obj) for obj in kex.get_history())


@pytest.mark.parametrize("base", [kopf.AnnotationsDiffBaseStorage, kopf.StatusDiffBaseStorage])
async def test_storages_of_users_change_the_essences_in_place(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    base: type[kopf.DiffBaseStorage],
) -> None:
    """What they take out there, handlers still see in the objects."""

    class DiffBase(base):  # type: ignore[misc, valid-type]
        def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
            essence: Any = super().build(body=body, extra_fields=extra_fields)
            del essence["spec"]["nested"]["one"]
            return essence  # type: ignore[no-any-return]

    class Progress(kopf.AnnotationsProgressStorage):
        def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
            cleared: Any = kopf.ProgressStorage.clear(self, essence=essence)
            cleared["spec"]["nested"].pop("two", None)
            return super().clear(essence=cleared)

    kopf.on.create("kopfexamples")(lambda spec, **_: calls.append(dict(spec["nested"])))
    kopf.on.update("kopfexamples")(lambda spec, diff, **_: calls.append((dict(spec["nested"]), diff)))
    operator.set("persistence.diffbase_storage", DiffBase())
    operator.set("persistence.progress_storage", Progress())
    await operator.start_and_create(kex, spec={"nested": {"one": 1, "two": 1, "three": 1}})
    await kex.wait(lambda obj: "last-handled" in repr(obj))
    await kex.merge({"spec": {"nested": {"one": 2, "two": 2}}})
    await kex.merge({"spec": {"nested": {"three": 2}}})
    await calls.wait_length(2)
    assert calls == [
        {"one": 1, "two": 1, "three": 1},
        ({"one": 2, "two": 2, "three": 2}, (("change", ("spec", "nested", "three"), 1, 2),)),
    ]


def test_the_interface_gives_its_descendants_a_copy_of_the_essence() -> None:
    essence: Any = {"spec": {"nested": {"value": 1}}}
    cleared: Any = kopf.ProgressStorage.clear(kopf.StatusProgressStorage(), essence=essence)
    assert cleared == essence
    cleared["spec"]["nested"].clear()
    assert essence == {"spec": {"nested": {"value": 1}}}
