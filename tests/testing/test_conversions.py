"""Operators that convert their own objects are crashed: what is missed meanwhile, is made up for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import kopf
from kopf.testing import SyncSimulation
from kopf_cluster import APIStatus


@dataclasses.dataclass
class BetaSpec:
    size: int


@dataclasses.dataclass
class Spec:
    size: str


@dataclasses.dataclass
class NotedSpec:
    size: str
    note: str | None = None


@pytest.fixture
def sized(registry: kopf.OperatorRegistry) -> None:
    """An operator that works with the version that is not the stored one."""

    class Beta(
        kopf.CustomResource[BetaSpec, dict[str, Any]],
        group="example.com",
        version="v1beta1",
        kind="Widget",
        storage=False,
    ):
        pass

    class Widget(kopf.CustomResource[Spec, dict[str, Any]], group="example.com", version="v1"):
        pass

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = kopf.WebhookServer(port=0)
        settings.admission.managed = "widgets.example.com"

    @kopf.convert(Widget, "v1beta1", "v1")
    def upgrade(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "spec": {"size": f"{obj['spec']['size']}G"}}

    @kopf.convert(Widget, "v1", "v1beta1")
    async def downgrade(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "spec": {"size": int(obj["spec"]["size"].removesuffix("G"))}}

    @kopf.on.create(Beta)
    @kopf.on.update(Beta)
    async def note(spec: BetaSpec, patch: kopf.Patch, **_: Any) -> None:
        patch.status["seen"] = spec.size


def make(name: str) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": "3G"}}


@pytest.mark.usefixtures("sized")
def test_nobody_converts_after_a_crash() -> None:
    with SyncSimulation() as simulation:
        simulation.settle()
        simulation.crash()
        simulation.apply(make("one"))
        with pytest.raises(APIStatus, match="conversion webhook for example.com/v1, Kind=Widget failed"):
            simulation.get("widgets.v1beta1.example.com", "one")
        simulation.restart()
        simulation.expect("widget", "one", field="status.seen", value=3)
        assert simulation.get("widgets.v1beta1.example.com", "one")["spec"] == {"size": 3}


@pytest.mark.usefixtures("sized")
@pytest.mark.parametrize("write", [1, 2])
def test_crashes_at_each_write(write: int) -> None:
    with SyncSimulation() as simulation:
        simulation.settle()
        simulation.crash_after(write=write, restart=True)
        simulation.apply(make("one"))
        simulation.expect("widget", "one", field="status.seen", value=3)
        simulation.settle()
        assert [note for note in map(str, simulation.journal) if "crashes" in note]
        simulation.edit("widget", "one", lambda obj: obj["spec"].update(size="4G"))
        simulation.expect("widget", "one", field="status.seen", value=4)


def test_the_writes_of_an_operator_lose_what_its_conversions_lose(registry: kopf.OperatorRegistry) -> None:
    """As on a real server, its writes are stored in the other version, from which the note does not come back."""

    class Old(
        kopf.CustomResource[NotedSpec, dict[str, Any]],
        group="example.com",
        version="v1beta1",
        kind="Widget",
        storage=False,
    ):
        pass

    class New(kopf.CustomResource[Spec, dict[str, Any]], group="example.com", version="v1", kind="Widget"):
        pass

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = kopf.WebhookServer(port=0)
        settings.admission.managed = "widgets.example.com"

    @kopf.convert(New, "v1beta1", "v1")
    def upgrade(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "spec": {"size": obj["spec"]["size"]}}

    @kopf.convert(New, "v1", "v1beta1")
    def downgrade(obj: dict[str, Any]) -> dict[str, Any]:
        return obj

    @kopf.on.create(Old)
    async def note(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["note"] = "seen"
        patch.status["noted"] = True

    with SyncSimulation() as simulation:
        simulation.settle()
        simulation.apply(make("one"))
        simulation.expect("widgets.v1beta1.example.com", "one", field="status.noted", value=True)
        assert simulation.get("widgets.v1beta1.example.com", "one")["spec"] == {"size": "3G"}
