from __future__ import annotations

import asyncio
import base64
import builtins
import datetime
import importlib
import inspect
import logging
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import yaml

from kopf._client.auth import piggyback, service_account
from kopf._client.auth.credentials import ConnectionInfo, LoginError
from kopf._client.auth.piggyback import login_via_async_client, login_via_client, login_via_pykube
from tests.client.libraries import replace_libraries, write_library
from tests.client.plugins import Plugin
from tests.patience import PATIENCE

Login = Callable[[], Awaitable[ConnectionInfo | None] | ConnectionInfo | None]

LIBRARIES: dict[Login, str] = {
    login_via_client: "kubernetes",
    login_via_async_client: "kubernetes_asyncio",
    login_via_pykube: "pykube",
}

PEM = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM).decode()


@pytest.fixture(autouse=True)
def _no_config(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kubeconfig and no service account: the tests can be running in a pod. Nothing of the logins remains either."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    set_kubeconfig(monkeypatch, tmp_path / "absent")
    yield
    for name in ("kubernetes.client", "kubernetes_asyncio.client"):
        if name in sys.modules:
            importlib.import_module(name).Configuration.set_default(None)


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
def libraries(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder for other libraries instead of the real ones."""
    with replace_libraries(tmp_path / "libraries") as folder:
        yield folder


@pytest.fixture
def _no_libraries(monkeypatch: pytest.MonkeyPatch, libraries: pathlib.Path) -> None:
    for name in LIBRARIES.values():
        monkeypatch.setitem(sys.modules, name, None)  # as it is said in the documentation of Python


@pytest.mark.parametrize("login", LIBRARIES)
async def test_folders_with_manifests_are_not_libraries(
    login: Login, libraries: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (libraries / LIBRARIES[login]).mkdir()
    (libraries / LIBRARIES[login] / "deployment.yaml").touch()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    assert await call(login) is None


@pytest.mark.parametrize("login", LIBRARIES)
async def test_broken_libraries_are_named(login: Login, libraries: pathlib.Path) -> None:
    """Something else is not installed, or the library does not fit to this version of Python."""
    write_library(libraries, LIBRARIES[login], config="import absent_dependency")
    with pytest.raises(LoginError, match=r"library (kubernetes\w*|pykube-ng) [0-9.]+ has failed on") as e:
        await call(login)
    assert "No module named 'absent_dependency'" in str(e.value)
    assert f"pip install --upgrade {LIBRARIES[login].replace('pykube', 'pykube-ng')}`" in str(e.value)
    assert "kopf.login_with_kubeconfig()" in str(e.value)


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("login", LIBRARIES)
async def test_libraries_that_lack_what_is_needed_are_named(login: Login, libraries: pathlib.Path) -> None:
    config = "class ConfigException(Exception): pass\ndef load_incluster_config(): raise ConfigException('no pod')"
    pykube = "class PyKubeError(Exception): pass\nclass KubeConfig: pass"
    write_library(libraries, LIBRARIES[login], __init__=pykube, config=config)
    with pytest.raises(LoginError, match=r"library (kubernetes\w*|pykube-ng) [0-9.]+ has failed on") as e:
        await call(login)
    assert "AttributeError" in str(e.value)


async def test_importing_does_not_block_the_loop(libraries: pathlib.Path) -> None:
    """If the loop was blocked, it could not let the import go on."""
    source = f"import builtins; assert builtins.imported.wait({PATIENCE}), 'the loop is blocked'"
    write_library(libraries, "kubernetes_asyncio", client=source)
    going_on = threading.Event()
    builtins.imported = going_on  # type: ignore[attr-defined]  # the way to reach it from there
    asyncio.get_running_loop().call_later(0.01, going_on.set)
    try:
        with pytest.raises(LoginError) as e:  # there is nothing in the library
            await login_via_async_client()
    finally:
        del builtins.imported  # type: ignore[attr-defined]  # as above
    assert "blocked" not in str(e.value)


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
    kubernetes = importlib.import_module("kubernetes")
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
    importlib.import_module("kubernetes")
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
    importlib.import_module("kubernetes")
    with pytest.raises(LoginError, match=r"official client .kubernetes [0-9.]+. can log in neither .* nor"):
        login_via_client()


@pytest.mark.usefixtures("kubeconfig")
async def test_async_client() -> None:
    kubernetes_asyncio = importlib.import_module("kubernetes_asyncio")
    info = await login_via_async_client()
    assert info is not None
    assert info.server == "https://host:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer tkn"}
    assert info.default_namespace == "ns1"
    assert pathlib.Path(str(info.ca_path)).read_bytes() == PEM
    assert kubernetes_asyncio.client.Configuration.get_default_copy().host == "https://host:6443"


async def test_async_client_finds_nothing() -> None:
    importlib.import_module("kubernetes_asyncio")
    with pytest.raises(LoginError, match=r"asynchronous client .kubernetes_asyncio [0-9.]+. can log in neither .* nor"):
        await login_via_async_client()


@pytest.mark.usefixtures("kubeconfig")
def test_pykube() -> None:
    importlib.import_module("pykube")
    info = login_via_pykube()
    assert info is not None
    assert info.server == "https://host:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer tkn"}
    assert info.default_namespace == "ns1"
    assert (info.ca_data, info.certificate_data, info.private_key_data) == (PEM, PEM, PEM)


@pytest.mark.parametrize("fields", [{"as": "admin"}, {"auth-provider": {"name": "gcp"}}])
def test_pykube_is_no_other_user_than_intended(
    kubeconfig: dict[str, Any], fields: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("pykube")
    kubeconfig["users"][0]["user"] |= fields
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    set_kubeconfig(monkeypatch, tmp_path / "config")
    with pytest.raises(LoginError, match="not support"):
        login_via_pykube()


def test_pykube_finds_nothing() -> None:
    importlib.import_module("pykube")
    with pytest.raises(LoginError, match=r"Pykube .pykube-ng [0-9.]+. can log in neither by a service account .* nor"):
        login_via_pykube()


@pytest.fixture
def pod(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service account of a pod, for us and for all libraries."""
    (tmp_path / "token").write_text("tkn")
    (tmp_path / "ca.crt").write_bytes(PEM)
    (tmp_path / "namespace").write_text("ns1")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(service_account, "SERVICE_ACCOUNT_PATH", str(tmp_path))
    for name in ("kubernetes", "kubernetes_asyncio"):
        module = importlib.import_module(f"{name}.config.incluster_config")
        monkeypatch.setattr(module, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(module, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    pykube = importlib.import_module("pykube")
    load = pykube.KubeConfig.from_service_account
    monkeypatch.setattr(pykube.KubeConfig, "from_service_account", lambda: load(path=str(tmp_path)))


@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize("login", [login_via_client, login_via_async_client, login_via_pykube])
async def test_tokens_of_pods_are_not_remembered(login: Login, tmp_path: pathlib.Path) -> None:
    """They are renewed every hour, but the libraries read them only once."""
    info = await call(login)
    assert info is not None
    assert info.server == "https://10.0.0.1:443"
    assert info.token_path == str(tmp_path / "token")
    assert info.ca_path == str(tmp_path / "ca.crt")
    assert info.default_namespace == "ns1"


@pytest.mark.parametrize("login", [login_via_client, login_via_async_client, login_via_pykube])
async def test_plugins_are_run_by_us(
    login: Login, kubeconfig: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries tell neither when the credentials expire, nor that the plugin has failed."""
    plugin = Plugin(tmp_path)
    plugin.bring(token="from-plugin", expirationTimestamp="2030-12-31T23:59:59Z")
    kubeconfig["users"][0]["user"] = {"exec": plugin.make_stanza()}
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    set_kubeconfig(monkeypatch, tmp_path / "config")
    info = await call(login)
    assert info is not None
    assert info.as_http_headers() == {"Authorization": "Bearer from-plugin"}
    assert info.expiration == datetime.datetime(2030, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)

    plugin.behave(stderr="no session", code=1)
    with pytest.raises(LoginError, match="no session|exit code 1"):
        await call(login)


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("login", [login_via_client, login_via_async_client, login_via_pykube])
async def test_proxies_of_the_environment_are_not_taken_from_libraries(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for the settings to decide if they are used."""
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://proxy:3128")
    info = await call(login)
    assert info is not None
    assert info.proxy_url is None


@pytest.mark.parametrize("login", [login_via_client, login_via_async_client, login_via_pykube])
async def test_proxies_and_names_of_kubeconfigs(
    login: Login, kubeconfig: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig["clusters"][0]["cluster"] |= {"proxy-url": "http://proxy", "tls-server-name": "name"}
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    set_kubeconfig(monkeypatch, tmp_path / "config")
    info = await call(login)
    assert info is not None
    assert (info.proxy_url, info.tls_server_name) == ("http://proxy", "name")


async def call(login: Login) -> ConnectionInfo | None:
    result = login()
    return await result if inspect.isawaitable(result) else result
