from __future__ import annotations

import pathlib
import subprocess
import sys
import tomllib

from tests.forging import Forge
from tests.patience import PATIENCE

ROOT = pathlib.Path(__file__).parent.parent
TESTS = """
import os
import pathlib
import pytest

def test_it_is_there(local_cluster):
    assert os.environ["KUBECONFIG"] == str(local_cluster.kubeconfig)
    assert local_cluster.url in pathlib.Path(os.environ["KUBECONFIG"]).read_text()
    local_cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})

@pytest.mark.local_cluster(authorization="rbac", bare=True)
def test_it_is_anew_and_as_wanted(local_cluster):
    assert local_cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {}})
    with pytest.raises(LookupError):
        local_cluster.create_token("default", "default")

@pytest.mark.local_cluster(nosuch=True)
def test_it_refuses_unknown_options(local_cluster):
    raise AssertionError
"""

CLIENTS = """
import asyncio
import kubernetes
import kubernetes_asyncio
import pytest

@pytest.mark.parametrize("name", ["one", "two"])
def test_the_official_client(local_cluster, name):
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kubernetes.config.load_kube_config()
    with kubernetes.client.ApiClient() as client:
        names = [item.metadata.name for item in kubernetes.client.CoreV1Api(client).list_namespace().items]
    assert {"one", "two"} & set(names) == {name}

@pytest.mark.parametrize("name", ["one", "two"])
def test_the_asynchronous_client(local_cluster, name):
    local_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def main():
        await kubernetes_asyncio.config.load_config()
        async with kubernetes_asyncio.client.ApiClient() as client:
            listed = await kubernetes_asyncio.client.CoreV1Api(client).list_namespace()
            return {item.metadata.name for item in listed.items}
    assert {"one", "two"} & asyncio.run(main()) == {name}

def test_it_is_as_before_without_the_fixture():
    assert kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION == "/nosuch"
    assert kubernetes_asyncio.config.KUBE_CONFIG_DEFAULT_LOCATION == "/nosuch"
"""


def test_the_plugin_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"kopf": "pytest_kopf"}
    assert "src/pytest_kopf.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    code = "import sys, pytest, pytest_kopf; assert not [name for name in sys.modules if name.startswith('kopf')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def run_tests(pytests: Forge, folder: pathlib.Path, tests: str, **env: str) -> str:
    """Without the plugins of this environment, so that it is certain where the fixture comes from."""
    (folder / "test_it.py").write_text(tests)
    args = ["-q", "-p", "pytest_kopf", "-p", "no:cacheprovider", "--strict-markers", "test_it.py"]
    return pytests.run(*args, cwd=folder, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env}).stdout


def test_the_fixture(tmp_path: pathlib.Path, pytests: Forge) -> None:
    output = run_tests(pytests, tmp_path, TESTS)
    assert "2 passed, 1 error" in output, output
    assert "unexpected keyword argument 'nosuch'" in output


def test_clients_that_read_the_environment_on_import_only(tmp_path: pathlib.Path, pytests: Forge) -> None:
    output = run_tests(pytests, tmp_path, CLIENTS, KUBECONFIG="/nosuch")
    assert "5 passed" in output, output
