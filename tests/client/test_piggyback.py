from __future__ import annotations

import base64
import builtins
import logging
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import yaml

from kopf._client import piggyback
from kopf._client.credentials import LoginError
from kopf._client.piggyback import login_via_async_client, login_via_client, login_via_pykube

PEM = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM).decode()


@pytest.fixture(autouse=True)
def _no_config(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubeconfig and no service account: the tests can be running in a pod."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    set_kubeconfig(monkeypatch, tmp_path / "absent")


def set_kubeconfig(monkeypatch: pytest.MonkeyPatch, path: pathlib.Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(path))
    if "kubernetes" in sys.modules:  # it looks at the variable only once, when it is imported
        from kubernetes.config import kube_config

        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    if "kubernetes_asyncio" in sys.modules:
        from kubernetes_asyncio.config import kube_config as async_config

        monkeypatch.setattr(async_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))


@pytest.fixture
def kubeconfig(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A kubeconfig with everything; it can be adjusted, and has to be written then."""
    cluster = {"server": "https://host:6443", "certificate-authority-data": DATA}
    user = {"token": "tkn", "client-certificate-data": DATA, "client-key-data": DATA}
    content = {
        "current-context": "ctx",
        "contexts": [{"name": "ctx", "context": {"cluster": "cls", "user": "usr", "namespace": "ns1"}}],
        "clusters": [{"name": "cls", "cluster": cluster}],
        "users": [{"name": "usr", "user": user}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    set_kubeconfig(monkeypatch, path)
    return content


@pytest.fixture
def _no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def fake_import(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("kubernetes", "kubernetes_asyncio", "pykube"):
            raise ModuleNotFoundError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fake_import)


@pytest.mark.usefixtures("_no_libraries")
async def test_absent_libraries(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("xyz")
    assert login_via_client(logger=logger, settings=None) is None
    assert await login_via_async_client(logger=logger, settings=None) is None
    assert login_via_pykube(logger=logger, settings=None) is None
    assert [record.name for record in caplog.records] == ["xyz"] * 3
    assert [record.levelno for record in caplog.records] == [logging.DEBUG] * 3


def test_libraries_are_not_imported_until_asked() -> None:
    code = (
        f"import sys, {piggyback.__name__}; print({{'kubernetes', 'kubernetes_asyncio', 'pykube'}} & {{*sys.modules}})"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert result.stdout.strip() == "set()"


@pytest.mark.usefixtures("kubeconfig")
def test_official_client() -> None:
    kubernetes = pytest.importorskip("kubernetes")
    info = login_via_client()
    assert info is not None
    assert info.server == "https://host:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer tkn"}
    assert info.default_namespace == "ns1"
    assert info.insecure is False
    assert pathlib.Path(str(info.ca_path)).read_bytes() == PEM
    assert pathlib.Path(str(info.certificate_path)).read_bytes() == PEM
    assert pathlib.Path(str(info.private_key_path)).read_bytes() == PEM
    # The client itself is ready to use.
    assert kubernetes.client.CoreV1Api().api_client.configuration.host == "https://host:6443"


def test_official_client_in_other_ways(
    kubeconfig: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    del kubeconfig["contexts"][0]["context"]["namespace"]
    cluster = {"server": "https://host", "insecure-skip-tls-verify": True, "proxy-url": "http://proxy"}
    kubeconfig["clusters"][0]["cluster"] = cluster
    kubeconfig["users"][0]["user"] = {}
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    set_kubeconfig(monkeypatch, tmp_path / "config")
    info = login_via_client()
    assert info is not None
    assert info.insecure is True
    assert info.proxy_url == "http://proxy"
    assert info.default_namespace is None
    assert info.as_http_headers() == {}


def test_official_client_finds_nothing() -> None:
    pytest.importorskip("kubernetes")
    with pytest.raises(LoginError, match=r"official client can log in neither by a service account .* nor"):
        login_via_client()


@pytest.mark.usefixtures("kubeconfig")
async def test_async_client() -> None:
    kubernetes_asyncio = pytest.importorskip("kubernetes_asyncio")
    info = await login_via_async_client()
    assert info is not None
    assert info.server == "https://host:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer tkn"}
    assert info.default_namespace == "ns1"
    assert pathlib.Path(str(info.ca_path)).read_bytes() == PEM
    assert kubernetes_asyncio.client.Configuration.get_default_copy().host == "https://host:6443"


async def test_async_client_finds_nothing() -> None:
    pytest.importorskip("kubernetes_asyncio")
    with pytest.raises(LoginError, match=r"asynchronous client can log in neither by a service account .* nor"):
        await login_via_async_client()


@pytest.mark.usefixtures("kubeconfig")
def test_pykube() -> None:
    pytest.importorskip("pykube")
    info = login_via_pykube()
    assert info is not None
    assert info.server == "https://host:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer tkn"}
    assert info.default_namespace == "ns1"
    assert (info.ca_data, info.certificate_data, info.private_key_data) == (PEM, PEM, PEM)


def test_pykube_finds_nothing() -> None:
    pytest.importorskip("pykube")
    with pytest.raises(LoginError, match=r"Pykube can log in neither by a service account .* nor"):
        login_via_pykube()
