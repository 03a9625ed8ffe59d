"""
Logins through the other client libraries of many versions, each in a virtual environment of its own.

A real operator logs in, handles an object, and its handler uses the library. It takes minutes and downloads much, so
it is apart: ``make logins``. Some old versions are checked always, see ``tests/client/test_piggyback_versions.py``.
"""

from __future__ import annotations

import asyncio
import functools
import os
import pathlib
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable

import pytest
import yaml
import yarl

from kopf_cluster import LocalCluster
from tests.behaviour.conftest import make_crd
from tests.behaviour.elsewhere import run_elsewhere
from tests.behaviour.objects import Objects
from tests.client.plugins import V1, V1BETA1, Plugin
from tests.conftest import LOGINS_MISSING
from tests.logs.json_logging import check_json_logs

ROOT = pathlib.Path(__file__).parent.parent.parent
OPERATOR = pathlib.Path(__file__).parent / "logging_in.py"

pytestmark = pytest.mark.timeout(600)  # the downloads are a part of the tests


def read_lowest() -> list[str]:
    """The lowest versions of everything that the project accepts, all at once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    accepted = [*project["dependencies"], *project["optional-dependencies"]["full-auth"]]
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+(,!=[\d.]+)*", line) for line in accepted), accepted
    return [line.partition(",")[0].replace(">=", "==") for line in accepted]


# What there was at about the same time; what is not named, is the newest possible.
VINTAGES = {
    "lowest": read_lowest(),
    "2022": ["kubernetes==23.6", "kubernetes_asyncio==23.6", "pykube-ng==22.9", "python-json-logger==2.0.7"],
    "2024": ["kubernetes==31", "kubernetes_asyncio==31.1.1", "pykube-ng==23.6", "python-json-logger==3.0.1"],
    "2025": ["kubernetes==35", "kubernetes_asyncio==32.3.2", "pykube-ng==20.10", "python-json-logger==3.3"],
    "2026": ["kubernetes==36.0.3", "kubernetes_asyncio==33.3", "pykube-ng==19.9", "python-json-logger==4.0"],
    "latest": ["kubernetes", "kubernetes_asyncio", "pykube-ng", "python-json-logger"],
}
LOGINS = ["login_via_client", "login_via_async_client", "login_via_pykube"]


async def execute(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 0, f"{command}: {errors.decode()}"


async def make_environment(path: pathlib.Path, requirements: list[str]) -> None:
    """Make a virtual environment with this framework and these requirements, unless it is there already."""
    stamp, content = path / "requirements.txt", "\n".join([str(ROOT), *requirements])
    if stamp.exists() and stamp.read_text() == content:
        return
    await execute(sys.executable, "-m", "venv", "--clear", str(path))
    pip = (str(path / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
    await execute(*pip, "--editable", str(ROOT), *requirements)
    stamp.write_text(content)


@pytest.fixture(params=VINTAGES)
async def command(request: pytest.FixtureRequest) -> str:
    """The command of this framework, with the libraries of that time."""
    folder = os.environ.get("KOPF_LOGINS")
    if folder is None:
        pytest.skip(LOGINS_MISSING)
    path = pathlib.Path(folder) / request.param
    await make_environment(path, VINTAGES[request.param])
    return str(path / "bin" / "kopf")


@pytest.fixture
async def cluster(command: str) -> AsyncIterator[LocalCluster]:
    """A cluster where only the user "jane" and one service account may do anything."""
    async with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        group, role = "rbac.authorization.k8s.io", "operator"
        rules = [
            {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": ["get", "list", "watch", "patch"]},
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": ["list", "watch"],
            },
        ]
        subjects = [
            {"kind": "User", "apiGroup": group, "name": "jane"},
            {"kind": "ServiceAccount", "namespace": "default", "name": "operator"},
        ]
        cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "operator"}}
        )
        cluster.apply({"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules})
        cluster.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": subjects,
            }
        )
        yield cluster


def prepare_certificate(cluster: LocalCluster, folder: pathlib.Path) -> dict[str, str]:
    """A kubeconfig of a person, with a client certificate."""
    cluster.write_kubeconfig(folder / "config", "jane")
    return {"KUBECONFIG": str(folder / "config")}


def prepare_token(cluster: LocalCluster, folder: pathlib.Path) -> dict[str, str]:
    """A kubeconfig with a token."""
    return write_user(cluster, folder, {"token": cluster.create_token("default", "operator")})


def prepare_plugin(cluster: LocalCluster, folder: pathlib.Path, *, version: str) -> dict[str, str]:
    """A kubeconfig with a command that brings a token."""
    plugin = Plugin(folder)
    plugin.bring(api_version=version, token=cluster.create_token("default", "operator"))
    return write_user(cluster, folder, {"exec": {**plugin.make_stanza(), "apiVersion": version}})


def write_user(cluster: LocalCluster, folder: pathlib.Path, user: dict[str, object]) -> dict[str, str]:
    """Write a kubeconfig with this user, and with the certificate of the cluster in a file."""
    config = yaml.safe_load(cluster.make_kubeconfig("nobody"))
    config["users"][0]["user"] = user
    (folder / "ca.crt").write_bytes(cluster.ca_data)
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    config["clusters"][0]["cluster"]["certificate-authority"] = str(folder / "ca.crt")
    (folder / "config").write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": str(folder / "config")}


def prepare_pod(cluster: LocalCluster, folder: pathlib.Path) -> dict[str, str]:
    """The files and the variables of a pod with a service account."""
    (folder / "token").write_text(cluster.create_token("default", "operator"))
    (folder / "ca.crt").write_bytes(cluster.ca_data)
    (folder / "namespace").write_text("default")
    url = yarl.URL(cluster.url)
    return {
        "KUBERNETES_SERVICE_HOST": str(url.host),
        "KUBERNETES_SERVICE_PORT": str(url.port),
        "KUBECONFIG": "/absent",
        "LOGIN_POD": str(folder),
    }


WAYS: dict[str, Callable[[LocalCluster, pathlib.Path], dict[str, str]]] = {
    "certificate": prepare_certificate,
    "token": prepare_token,
    "plugin-v1": functools.partial(prepare_plugin, version=V1),
    "plugin-v1beta1": functools.partial(prepare_plugin, version=V1BETA1),
    "pod": prepare_pod,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("login", LOGINS)
async def test_operators_log_in_and_handle(
    command: str,
    cluster: LocalCluster,
    kex: Objects,
    tmp_path: pathlib.Path,
    login: str,
    way: str,
) -> None:
    async with run_elsewhere(command, OPERATOR, LOGIN_VIA=login, **WAYS[way](cluster, tmp_path)):
        obj = await kex.create_and_wait()
    environment = pathlib.Path(command).parent.parent
    assert obj["status"]["create_fn"] == {"seen": "obj", "python": str(environment)}


async def test_json_logs(command: str) -> None:
    await asyncio.to_thread(check_json_logs, str(pathlib.Path(command).parent / "python"))
