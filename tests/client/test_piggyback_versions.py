"""
Logins through old versions of the other clients: the real ones, downloaded once.

Only what comes out of the login is checked here; always for the oldest versions, and by ``make logins`` for those at
the changes that matter, besides real operators with many versions.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

import kopf
from tests.downloads import get_old

# What they need besides is there for the new versions, or is listed.
CLIENTS = {
    "kubernetes-12.0": ("login_via_client", ["kubernetes==12.0.0", "google-auth", "six"]),
    "kubernetes_asyncio-12.0": ("login_via_async_client", ["kubernetes_asyncio==12.0.0", "six"]),
    "pykube-ng-0.17": ("login_via_pykube", ["pykube-ng==0.17"]),
}
if "KOPF_LOGINS" in os.environ:
    CLIENTS["kubernetes-35.0"] = ("login_via_client", ["kubernetes==35.0.0", "google-auth", "six"])
    CLIENTS["kubernetes_asyncio-32.3"] = ("login_via_async_client", ["kubernetes_asyncio==32.3.2", "six"])

pytestmark = pytest.mark.timeout(300)  # the first time, they are downloaded

PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"

PROBE = """
import asyncio, dataclasses, inspect, json, os, sys, kopf
def log_in(path):
    os.environ["KUBECONFIG"] = path
    result = getattr(kopf, sys.argv[1])()
    info = asyncio.run(result) if inspect.iscoroutine(result) else result
    texts = {**dataclasses.asdict(info), "headers": info.as_http_headers()}
    for name in ("ca", "certificate", "private_key"):
        path, data = texts.pop(f"{name}_path"), texts.pop(f"{name}_data")
        texts[name] = open(path).read() if path else data.decode() if data else None
    return texts
print(json.dumps([log_in(path) for path in sys.argv[2:]]))
"""
"""Logs in by each of the kubeconfigs; certificates are what is in the files, as some libraries write them there."""


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> tuple[str, pathlib.Path]:
    """The name of the login, and the folder with the library."""
    login, requirements = CLIENTS[request.param]
    return login, get_old(request.param, requirements)


def write_kubeconfig(path: pathlib.Path, cluster: Mapping[str, Any], user: Mapping[str, Any], **context: str) -> str:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", **context}}],
                "clusters": [{"name": "x", "cluster": {"server": "https://host:6443", **cluster}}],
                "users": [{"name": "x", "user": user}],
            }
        )
    )
    return str(path)


def log_in(login: str, library: pathlib.Path, *paths: str) -> Any:
    """Log in by each of the kubeconfigs in a process of its own, where the library is of that version."""
    source = str(pathlib.Path(kopf.__file__).parent.parent)
    env = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    env["PYTHONPATH"] = os.pathsep.join([str(library), source])
    command = [sys.executable, "-c", PROBE, login, *paths]
    result = subprocess.run(command, capture_output=True, check=False, text=True, env=env)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_old_versions_bring_the_same_as_the_new_ones(client: tuple[str, pathlib.Path], tmp_path: pathlib.Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    full_cluster = {
        "certificate-authority-data": data,
        "proxy-url": "http://proxy:3128",
        "tls-server-name": "kubernetes",
    }
    certificates = {"client-certificate-data": data, "client-key-data": data}
    by_token, by_password, insecure = log_in(
        *client,
        write_kubeconfig(tmp_path / "1", full_cluster, {"token": "tkn", **certificates}, namespace="ns1"),
        write_kubeconfig(tmp_path / "2", {}, {"username": "jane", "password": "pwd"}),
        write_kubeconfig(tmp_path / "3", {"insecure-skip-tls-verify": True}, certificates),
    )

    assert by_token["server"] == "https://host:6443"
    assert by_token["headers"] == {"Authorization": "Bearer tkn"}
    assert (by_token["ca"], by_token["certificate"], by_token["private_key"]) == (PEM, PEM, PEM)
    assert (by_token["proxy_url"], by_token["tls_server_name"]) == ("http://proxy:3128", "kubernetes")
    assert by_token["default_namespace"] == "ns1"
    assert not by_token["insecure"]

    assert by_password["headers"] == {"Authorization": "Basic amFuZTpwd2Q="}
    assert (by_password["ca"], by_password["certificate"], by_password["private_key"]) == (None, None, None)
    assert (by_password["proxy_url"], by_password["tls_server_name"]) == (None, None)
    assert by_password["server"] == "https://host:6443"

    assert insecure["insecure"] is True
    assert insecure["headers"] == {}
    assert insecure["certificate"] == PEM
