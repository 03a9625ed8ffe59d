"""The operator's own files and modules in a simulation: loaded anew, with their own handlers."""

from __future__ import annotations

import pathlib
import sys
import textwrap

import click
import pytest

import kopf
import kopf_cluster
from kopf.testing import SyncSimulation, simulate
from tests.testing.kopfexamples import CRD, make

HANDLERS = textwrap.dedent("""
    import kopf

    seen = []

    @kopf.on.create("kopfexamples", id="create")
    async def create_fn(name, **_):
        seen.append(name)
        return seen
""")


@pytest.fixture
def handlers(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "handlers_of_a_simulation.py"
    path.write_text(HANDLERS)
    return path


def live(simulation: SyncSimulation) -> object:
    simulation.apply(make())
    return simulation.expect("kex", "obj", field="status.create")["status"]["create"]


def test_files(handlers: pathlib.Path) -> None:
    for _ in range(2):  # nothing of the first time is left
        with SyncSimulation(handlers, crds=CRD) as simulation:
            assert live(simulation) == ["obj"]
            assert len(simulation.journal.get_calls()) == 1
    assert not kopf.get_default_registry()


def test_modules(handlers: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(handlers.parent))
    for _ in range(2):
        with SyncSimulation(modules=["handlers_of_a_simulation"], crds=CRD) as simulation:
            assert live(simulation) == ["obj"]
    assert not kopf.get_default_registry()
    sys.modules.pop("handlers_of_a_simulation")


def test_definitions_in_files(handlers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}")
    with SyncSimulation(handlers, crds=[CRD, path]) as simulation:
        assert simulation.get("cm", "one")
        assert live(simulation)


def test_absent_files(tmp_path: pathlib.Path) -> None:
    with pytest.raises(click.ClickException, match="nosuch.py"), SyncSimulation(tmp_path / "nosuch.py"):
        pass


def test_a_given_registry() -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.create("kopfexamples", registry=registry, id="create")
    async def create_fn(**_: object) -> str:
        return "done"

    with SyncSimulation(registry=registry, crds=CRD) as simulation:
        assert live(simulation) == "done"


def test_scripts_without_pytest(handlers: pathlib.Path) -> None:
    async def main(simulation: kopf.testing.Simulation) -> float:
        await simulation.advance(hours=1)
        return simulation.now

    assert simulate(main, handlers, crds=CRD) == 3600


MODELS = textwrap.dedent("""
    import typing
    import kopf

    class Spec(typing.TypedDict, total=False):
        size: int

    class KopfExample(kopf.CustomResource[Spec, dict[str, typing.Any]], group="kopf.dev", version="v1"):
        pass

    @kopf.on.create(KopfExample, id="create")
    async def create_fn(spec: Spec, **_):
        return spec["size"]
""")


@pytest.mark.parametrize("is_operator", [True, False], ids=["operator", "cluster"])
def test_definitions_of_models(handlers: pathlib.Path, is_operator: bool) -> None:
    handlers.write_text(MODELS)
    with SyncSimulation(handlers, operator=is_operator) as simulation:
        with pytest.raises(kopf_cluster.APIStatus, match="spec.size"):
            simulation.apply(make(size="text"))
        simulation.apply(make(size=3))
        if not is_operator:
            simulation.restart()
        assert simulation.expect("kopfexample", "obj", field="status.create")["status"]["create"] == 3


def test_definitions_of_tests_go_before_those_of_models(handlers: pathlib.Path) -> None:
    handlers.write_text(MODELS)
    with SyncSimulation(handlers, crds=CRD) as simulation:
        assert simulation.get("crd", "kopfexamples.kopf.dev")["spec"]["names"]["shortNames"] == ["kex"]
        simulation.apply(make(size="text"))
