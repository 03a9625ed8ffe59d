from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from kopf_cluster import LocalCluster
from tests.cli.processes import ROOT, Process
from tests.forging import Forge

EXAMPLE = ROOT / "examples" / "01-minimal"

Starter = Callable[..., Process]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster in a thread, with the resource & the object of the example."""
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        yield cluster


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("loops") is not None:
        metafunc.parametrize("loop", ["asyncio", "uvloop"])


@pytest.fixture
def loop() -> str:
    """The event loop of the commands: the one of ``uvloop``, as it is installed. Those marked as ``loops`` use both."""
    return "uvloop"


@pytest.fixture
def start(forge: Forge | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, loop: str) -> Starter:
    """Start real processes in an empty directory, with no kubeconfig known to them unless specified."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nonexistent-kubeconfig"))
    monkeypatch.setenv("KOPF_TEST_LOOP", loop)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def start(
        *args: str,
        kubeconfig: pathlib.Path | None = None,
        log: str = "output.log",
        terminal: bool = False,
        **env: str,
    ) -> Process:
        if kubeconfig is not None:
            env["KUBECONFIG"] = str(kubeconfig)
        return Process(*args, cwd=tmp_path, log=tmp_path / log, env=env, terminal=terminal, forge=forge)

    return start
