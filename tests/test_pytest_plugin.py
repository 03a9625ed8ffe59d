from __future__ import annotations

import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
TESTS = '''
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
'''


def test_the_plugin_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"kopf": "pytest_kopf"}
    assert "pytest_kopf.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values()


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    code = "import sys, pytest, pytest_kopf; assert not [name for name in sys.modules if name.startswith('kopf')]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_the_fixture(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    # Without the plugins of this environment, so that it is certain where the fixture comes from.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_kopf", "-p", "no:cacheprovider", "--strict-markers",
         "test_it.py"],
        cwd=tmp_path, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True, timeout=50)
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "unexpected keyword argument 'nosuch'" in done.stdout
