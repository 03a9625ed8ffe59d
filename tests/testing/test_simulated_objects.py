"""The objects of a simulation, as users work with them: anyone of them, with their own permissions."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import kopf
from kopf.testing import APIStatus, Simulation, SyncSimulation
from tests.testing.kopfexamples import CRD, begin, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)
CM = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {key: value}}"


async def test_manifests(simulation: Simulation, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(CM % "one" + "\n---\n" + CM % "two")
    assert (await simulation.apply(path))["metadata"]["name"] == "two"
    assert (await simulation.apply(CM % "three"))["data"] == {"key": "value"}
    assert (await simulation.apply(make()))["kind"] == "KopfExample"
    names = [obj["metadata"]["name"] for obj in await simulation.list("cm", namespace="default")]
    assert {"one", "two", "three"} <= set(names)


async def test_reading(simulation: Simulation) -> None:
    obj = await simulation.apply(make(size=1))
    assert await simulation.get("kex", "obj") == obj
    assert await simulation.find("kex", "obj") == obj
    assert await simulation.find("kex", "nosuch") is None
    with pytest.raises(APIStatus) as error:
        await simulation.get("kex", "nosuch")
    assert error.value.code == 404
    assert await simulation.list("kex", fields="metadata.name=obj") == [obj]
    assert await simulation.list("kex", labels="app=nosuch") == []


async def test_patching(simulation: Simulation) -> None:
    await simulation.apply(make(size=1))
    obj = await simulation.patch("kex", "obj", {"spec": {"size": 2}})
    assert obj["spec"] == {"size": 2}
    obj = await simulation.patch("kex", "obj", [{"op": "add", "path": "/spec/more", "value": 1}])
    assert obj["spec"] == {"size": 2, "more": 1}
    obj = await simulation.patch("kex", "obj", {"status": {"ready": True}}, subresource="status")
    assert obj["status"] == {"ready": True}


async def test_editing(simulation: Simulation) -> None:
    await simulation.apply(make(size=1, old="x"))

    def change(obj: dict[str, Any]) -> None:
        obj["spec"]["size"] = 2
        del obj["spec"]["old"]
        obj["metadata"]["labels"] = {"app": "x"}

    obj = await simulation.edit("kex", "obj", change)
    assert obj["spec"] == {"size": 2}
    assert obj["metadata"]["labels"] == {"app": "x"}
    [*_, write] = simulation.journal.get_writes(name="obj")
    assert (write.author, write.type) == ("kubernetes-admin", "MODIFIED")
    assert "spec.size: 1 -> 2" in write.changes


async def test_editing_the_type_of_a_value(simulation: Simulation) -> None:
    """In Python, these values are equal; in JSON, they are not."""
    await simulation.apply(make(one=1, zero=[0]))
    obj = await simulation.edit("kex", "obj", lambda obj: obj["spec"].update(one=True, zero=[False]))
    assert repr(obj["spec"]) == "{'one': True, 'zero': [False]}"
    assert obj["metadata"]["generation"] == 2


async def test_deleting(simulation: Simulation) -> None:
    await simulation.apply({**make(), "metadata": {"name": "obj", "finalizers": ["example.com/held"]}})
    await simulation.delete("kex", "obj")
    obj = await simulation.get("kex", "obj")
    assert obj["metadata"]["deletionTimestamp"]
    await simulation.patch("kex", "obj", {"metadata": {"finalizers": []}})
    assert await simulation.find("kex", "obj") is None
    types = [write.type for write in simulation.journal.get_writes(name="obj")]
    assert types == ["ADDED", "MODIFIED", "DELETED"]


@pytest.mark.simulation(crds=CRD, operator=False, authorization="rbac")
async def test_users_have_their_own_permissions(simulation: Simulation) -> None:
    await simulation.apply(
        """
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata: {name: viewers}
        rules: [{apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [get, list]}]
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRoleBinding
        metadata: {name: viewers}
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewers}
        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
    """.replace("\n        ", "\n")
    )
    await simulation.apply(make())
    assert await simulation.get("kex", "obj", as_user="alice")
    assert len(await simulation.list("kex", as_user="alice")) == 1
    for deed in (
        simulation.apply(make("other"), as_user="alice"),
        simulation.patch("kex", "obj", {"spec": {}}, as_user="alice"),
        simulation.edit("kex", "obj", lambda obj: obj.update(spec={"size": 1}), as_user="alice"),
        simulation.delete("kex", "obj", as_user="alice"),
        simulation.get("kex", "obj", as_user="bob"),
    ):
        with pytest.raises(APIStatus) as error:
            await deed
        assert error.value.code == 403


async def test_deeds_of_users_are_seen_by_name(simulation: Simulation) -> None:
    await simulation.apply(make(), as_user="alice")
    assert [write.author for write in simulation.journal.get_writes(name="obj")] == ["alice"]


@pytest.mark.simulation(crds=CRD, operator=False, authorization="rbac", groups=[])
async def test_the_operator_has_only_its_permissions(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        pass

    await begin(simulation, make())
    await simulation.advance(minutes=1)
    assert simulation.journal.get_calls() == []
    assert any("403" in message or "forbidden" in message.lower() for message in simulation.logs.get_messages())


async def test_events(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(body: kopf.Body, logger: kopf.ObjectLogger, **_: Any) -> None:
        kopf.info(body, reason="First", message="...")
        logger.info("This is logged.")

    await simulation.restart()
    obj = await simulation.apply(make())
    await simulation.apply(make("other"))
    await simulation.settle()
    assert "First" in [event["reason"] for event in await simulation.events(obj)]
    assert {event["involvedObject"]["name"] for event in await simulation.events("other")} == {"other"}
    assert len(await simulation.events()) == 2 * len(await simulation.events("obj"))
    assert "This is logged." in simulation.logs
    assert simulation.logs.get_messages(name="other").count("This is logged.") == 1


async def test_journal(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="one")
    async def create_fn(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("boo!", delay=5)

    await begin(simulation, make())
    await simulation.settle(calm=10)
    first, second = simulation.journal.get_calls("one")
    assert (first.reason, first.retry, first.outcome, first.delay) == ("create", 0, "retried", 5)
    assert first.error == "TemporaryError: boo!"
    assert (second.retry, second.outcome, second.name, second.namespace) == (1, "succeeded", "obj", "default")
    assert simulation.journal.get_calls("one", name="other") == []
    assert simulation.journal.get_calls(reason="update") == []
    assert [entry.time for entry in simulation.journal] == sorted(entry.time for entry in simulation.journal)
    assert "create handler 'one' of kopfexamples.kopf.dev default/obj retried in 5s: TemporaryError: boo!" in str(
        simulation.journal
    )


def test_the_facade_has_it_all(simulation: SyncSimulation) -> None:
    obj = simulation.apply(make(size=1))
    assert simulation.get("kex", "obj") == simulation.find("kex", "obj") == obj
    assert simulation.list("kex") == [obj]
    simulation.patch("kex", "obj", {"spec": {"size": 2}})
    simulation.edit("kex", "obj", lambda obj: obj["spec"].update(size=3))
    assert simulation.expect("kex", "obj", field="spec.size", value=3)
    assert "spec.size: 2 -> 3" in simulation.timeline("kex", "obj")
    simulation.restart()
    simulation.advance(minutes=1)
    simulation.crash()
    simulation.downtime(minutes=1)
    simulation.settle()
    simulation.until(lambda: simulation.is_running)
    simulation.stop()
    simulation.delete("kex", "obj")
    assert simulation.events("obj") == []
    assert simulation.writes == 0
    assert simulation.kubeconfig.exists()
