"""Explored tests as pytest runs them: with fixtures, parameters, marks, in classes, beside plugins for coroutines."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.forging import Forge

TESTS = """
import asyncio
import pytest
import kopf
from kopf.testing import SyncSimulation, explore

pytestmark = pytest.mark.simulation(seed=5)
cloud = {}

@kopf.on.create("configmaps", labels={"mine": kopf.PRESENT})
def create_fn(name, body, **_):
    cloud[name] = cloud.get(name, "") + body["data"]["size"]

def make(size):
    metadata = {"name": "one", "labels": {"mine": ""}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"size": size}}

@pytest.fixture
def prices(tmp_path):
    (tmp_path / "prices").write_text("100")
    return tmp_path / "prices"

FIXTURE

options = {"troubles": ["crash"], "observe": lambda: dict(cloud)}

@explore(**options, runs=1)
async def test_fixtures(simulation, prices, opened, monkeypatch):
    assert opened == "opened" and simulation.seed == 5
    cloud.clear()
    await simulation.apply(make(prices.read_text()))

@explore(**options, runs=1)
def test_regular_function(prices, simulation):
    assert isinstance(simulation, SyncSimulation)
    cloud.clear()
    simulation.apply(make(prices.read_text()))

@explore(**options)
@pytest.mark.parametrize("size", ["1", "2"])
async def test_parameters(sim, size):
    cloud.clear()
    await sim.apply(make(size))
    await sim.settle()

@pytest.mark.parametrize("size", ["3"])
@pytest.mark.simulation(seed=7)
@explore(**options)
async def test_fixtures_and_parameters(simulation, size, prices):
    assert simulation.seed == 7
    cloud.clear()
    await simulation.apply(make(size))

class TestOfClass:
    @explore(**options)
    async def test_method(self, simulation):
        cloud.clear()
        await simulation.apply(make("1"))

@explore(**options)
async def test_unrepeatable(simulation):
    await simulation.apply(make("1"))

@explore()
async def test_unknown_fixture(simulation, nosuch):
    pass
"""
COROUTINE = "async def opened():\n    await asyncio.sleep(0)\n    return 'opened'"
PLUGINS = {
    "auto": (["-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"], f"@pytest.fixture\n{COROUTINE}"),
    "strict": (
        ["-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=strict"],
        f"import pytest_asyncio\n@pytest_asyncio.fixture\n{COROUTINE}",
    ),
    "none": ([], "@pytest.fixture\ndef opened():\n    return 'opened'"),
}


def run(folder: pathlib.Path, plugin: str, pytests: Forge, *more: str) -> str:
    args, fixture = PLUGINS[plugin]
    args = [*args, "-o", "asyncio_default_fixture_loop_scope=function"] if args else args
    (folder / "test_it.py").write_text(TESTS.replace("FIXTURE", fixture))
    (folder / "pytest.ini").write_text("[pytest]\n")
    args = ["-q", "-p", "pytest_kopf", "-p", "no:cacheprovider", "-W", "error", *args, *more]
    return pytests.run(*args, cwd=folder, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}).stdout


def test_explored_tests(tmp_path: pathlib.Path, pytests: Forge) -> None:
    shown = run(tmp_path, "auto", pytests)
    assert "fixture 'nosuch' not found" in shown, shown
    assert "2 passed" in shown
    assert "5 failed" in shown
    assert "exploration = runpy.run_path('test_it.py')['test_parameters'].exploration.given(size='2')" in shown
    assert "pytest 'test_it.py::test_fixtures_and_parameters[3]'" in shown
    assert "pytest 'test_it.py::TestOfClass::test_method'" in shown
    assert "The test cannot be explored. It ran again without any trouble" in shown


@pytest.mark.parametrize("plugin", ["strict", "none"])
def test_other_plugins_for_coroutines(tmp_path: pathlib.Path, plugin: str, pytests: Forge) -> None:
    shown = run(tmp_path, plugin, pytests, "-k", "fixtures or regular")
    assert "1 failed, 2 passed" in shown, shown
    assert "pytest 'test_it.py::test_fixtures_and_parameters[3]'" in shown


def test_scripts_have_the_parameters(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace("FIXTURE", PLUGINS["none"][1]))

    def execute(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-"], input=script, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    exploration = "test_parameters.exploration.given(size='2')"
    report = execute(f"from test_it import *\nprint({exploration}.explore().failures[0].script)")
    assert ".given(size='2')" in report.stdout, report.stderr
    assert 'outside: one is "22", but must be "2"' in execute(report.stdout).stderr
