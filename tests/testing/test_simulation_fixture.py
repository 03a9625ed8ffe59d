"""The fixture of pytest: in tests of all kinds, with other plugins for coroutines or without any."""

from __future__ import annotations

import pathlib

import pytest

from tests.forging import Forge

HANDLERS = """
import kopf

@kopf.on.create("configmaps", id="create", labels={"mine": kopf.PRESENT})
async def create_fn(name, **_):
    pass
"""
TESTS = """
import asyncio
import pytest
import handlers
from kopf.testing import Simulation, SyncSimulation

OBJ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"mine": ""}}}

@pytest.fixture
def number():
    return 5

MARK
async def test_coroutine(simulation, number):
    assert isinstance(simulation, Simulation)
    await simulation.apply(OBJ)
    await simulation.advance(hours=1)
    assert [call.name for call in simulation.journal.get_calls("create")] == ["one"]
    assert number == 5

def test_function(simulation):
    assert isinstance(simulation, SyncSimulation)
    simulation.apply(OBJ)
    simulation.advance(hours=1)
    assert [call.name for call in simulation.journal.get_calls("create")] == ["one"]

class TestOfClass:
    MARK
    @pytest.mark.parametrize("hours", [1, 2])
    async def test_coroutine(self, simulation, hours):
        await simulation.advance(hours=hours)
        assert simulation.now == 3600 * hours

    def test_function(self, simulation):
        simulation.advance(hours=1)
        assert simulation.now == 3600

@pytest.mark.simulation(seed=5, operator=False)
class TestOfMarkedClass:
    MARK
    async def test_options(self, simulation):
        assert simulation.seed == 5 and not simulation.is_running

@pytest.mark.simulation("handlers.py", seed=7)
def test_files(simulation):
    assert simulation.seed == 7
    simulation.apply(OBJ)
    simulation.settle()
    assert len(simulation.journal.get_calls("create")) == 1

MARK
async def test_failure(simulation):
    await simulation.expect("cm", "nosuch", within=60)

MARK
async def test_other_coroutines():
    await asyncio.sleep(0.01)
"""


ASYNCIO = ["-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function"]


def run(pytests: Forge, folder: pathlib.Path, *args: str, mark: str = "", expected: str) -> str:
    (folder / "handlers.py").write_text(HANDLERS)
    (folder / "test_it.py").write_text(TESTS.replace("MARK", mark))
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n    anyio\n")
    args = ("-q", "-p", "pytest_kopf", "-p", "no:cacheprovider", "-W", "error", *args)
    done = pytests.run(*args, cwd=folder, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert expected in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("args", "mark"),
    [
        ([*ASYNCIO, "-o", "asyncio_mode=auto"], ""),
        ([*ASYNCIO, "-o", "asyncio_mode=strict"], "@pytest.mark.asyncio"),
        (["-p", "anyio.pytest_plugin"], "@pytest.mark.anyio"),
    ],
    ids=["auto", "strict", "anyio"],
)
def test_plugins_for_coroutines(tmp_path: pathlib.Path, pytests: Forge, args: list[str], mark: str) -> None:
    output = run(pytests, tmp_path, *args, mark=mark, expected="1 failed, 8 passed")
    assert "default/nosuch is not as expected in 60 seconds: it is not there." in output


def test_no_plugins(tmp_path: pathlib.Path, pytests: Forge) -> None:
    output = run(pytests, tmp_path, "-k", "not other", expected="1 failed, 7 passed")
    assert "the operator starts" in output
