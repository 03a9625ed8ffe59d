"""
The real ``kubectl`` goes through everything it can do with a cluster, as users would, command by command.

Each script has its own cluster and goes separately, so that they can be run in parallel.
"""
from __future__ import annotations

import pathlib
import shutil
from types import ModuleType

import pytest

from kopf.testing import LocalCluster
from tests.cluster.rounds import (
    script_access,
    script_applying,
    script_changing,
    script_creating,
    script_customs,
    script_deleting,
    script_discovery,
    script_getting,
    script_workloads,
)
from tests.cluster.rounds.scripts import Console

MANIFESTS = pathlib.Path(__file__).parent / "manifests"
SCRIPTS = [script_access, script_applying, script_changing, script_creating, script_customs, script_deleting,
           script_discovery, script_getting, script_workloads]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__.rpartition("script_")[-1])
def test_kubectl_commands(script: ModuleType, kubectl: str, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "work"
    shutil.copytree(MANIFESTS, directory)
    kubeconfig = directory / "kubeconfig"  # a copy, as some commands change it
    with LocalCluster(simulate=True, authorization="rbac") as cluster:
        shutil.copy(cluster.kubeconfig, kubeconfig)
        Console(kubectl, kubeconfig, directory).execute(script.STEPS)


def test_the_scripts_have_enough_commands() -> None:
    """Only different commands count, and those in the background only once."""
    commands = {(step.command, step.stdin) for script in SCRIPTS for step in script.STEPS if step.action != "see"}
    assert len(commands) >= 150, len(commands)
