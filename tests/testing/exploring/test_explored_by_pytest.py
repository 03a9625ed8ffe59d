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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_explored_tests(tmp_path: pathlib.Path, plugin: str, pytests: Forge) -> None:
    args, fixture = PLUGINS[plugin]
    args = [*args, "-o", "asyncio_default_fixture_loop_scope=function"] if args else args
    (tmp_path / "test_it.py").write_text(TESTS.replace("FIXTURE", fixture))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    args = ["-q", "-p", "pytest_kopf", "-p", "no:cacheprovider", "-W", "error", *args]
    done = pytests.run(*args, cwd=tmp_path, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert "fixture 'nosuch' not found" in done.stdout, done.stdout + done.stderr
    assert "2 passed" in done.stdout, done.stdout
    assert "5 failed" in done.stdout, done.stdout
    assert "exploration = runpy.run_path('test_it.py')['test_parameters'].exploration.given(size='2')" in done.stdout
    assert "pytest 'test_it.py::test_fixtures_and_parameters[3]'" in done.stdout
    assert "pytest 'test_it.py::TestOfClass::test_method'" in done.stdout
    assert "The test cannot be explored. It ran again without any trouble" in done.stdout


def test_scripts_have_the_parameters(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace("FIXTURE", PLUGINS["none"][1]))

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-"], input=script, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    exploration = "test_parameters.exploration.given(size='2')"
    report = run(f"from test_it import *\nprint({exploration}.explore().failures[0].script)")
    assert ".given(size='2')" in report.stdout, report.stderr
    assert 'outside: one is "22", but must be "2"' in run(report.stdout).stderr
