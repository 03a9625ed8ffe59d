"""
The real ``kubectl`` and ``helm`` go through everything they can do with a cluster, as users would, command by command.

Each script has its own cluster and goes separately, so that they can be run in parallel. Scripts with what people do
rarely are run if ``KOPF_TEST_SCRIPTS`` is set, as in ``make random``.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from types import ModuleType

import pytest

from kopf.testing import LocalCluster
from tests.cluster.rounds import (
    script_access,
    script_applying,
    script_bare,
    script_certificates,
    script_changing,
    script_creating,
    script_customs,
    script_debugging,
    script_deleting,
    script_discovery,
    script_getting,
    script_helm,
    script_histories,
    script_kinds,
    script_migrating,
    script_settings,
    script_workloads,
)
from tests.cluster.rounds.scripts import Console
from tests.downloads import get_helm

MANIFESTS = pathlib.Path(__file__).parent / "manifests"
SCRIPTS = [
    script_access,
    script_applying,
    script_changing,
    script_creating,
    script_customs,
    script_deleting,
    script_discovery,
    script_getting,
    script_workloads,
]
RARE = [script_certificates, script_debugging, script_histories, script_kinds, script_migrating, script_settings]
if os.environ.get("KOPF_TEST_SCRIPTS"):
    SCRIPTS += RARE


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__.rpartition("script_")[-1])
def test_kubectl_commands(script: ModuleType, kubectl: str, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "work"
    shutil.copytree(MANIFESTS, directory)
    kubeconfig = directory / "kubeconfig"  # a copy, as some commands change it
    with LocalCluster(simulate=True, authorization="rbac") as cluster:
        shutil.copy(cluster.kubeconfig, kubeconfig)
        Console(kubectl, kubeconfig, directory).execute(script.STEPS)


def test_kubectl_in_a_bare_cluster(kubectl: str, tmp_path: pathlib.Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path, dirs_exist_ok=True)
    with LocalCluster(bare=True) as cluster:
        Console(kubectl, cluster.kubeconfig, tmp_path).execute(script_bare.STEPS)


def test_helm_commands(tmp_path: pathlib.Path) -> None:
    helm = get_helm()
    shutil.copytree(MANIFESTS / "chart", tmp_path / "chart")
    with LocalCluster(simulate=True, authorization="rbac") as cluster:
        Console(helm, cluster.kubeconfig, tmp_path).execute(script_helm.STEPS)
