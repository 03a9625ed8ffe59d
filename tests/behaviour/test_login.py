"""Login: where the credentials come from, and what if there are none or they are refused."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import logging
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

import kopf
from kopf._operator.login import login_by_default
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, do_nothing

pytestmark = pytest.mark.usefixtures("by_network")

LIBRARIES = ("kubernetes", "kubernetes_asyncio", "pykube", "kubernetes.aio")


@pytest.fixture
def no_libraries_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of the same process could import them, and that matters for the default login."""
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """With no login handlers, but with something to do."""
    registry = kopf.OperatorRegistry()
    kopf.on.create("kopfexamples", registry=registry)(do_nothing)
    return registry


@pytest.mark.usefixtures("no_libraries_are_imported")
async def test_the_kubeconfig_is_used_by_default(operator: Operator, kex: Objects, logs: Logs) -> None:
    await operator.start_and_handle(kex)
    assert logs.find("Initial authentication has been initiated.")
    assert logs.find("Activity 'login_by_default' succeeded.")
    assert logs.find("Initial authentication has finished.")


@pytest.mark.parametrize("library", ["kubernetes", "kubernetes_asyncio", "pykube"])
async def test_an_imported_library_is_used_by_default_and_gets_configured(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    no_libraries_are_imported: None,
) -> None:
    module = importlib.import_module(library)
    for name in set(LIBRARIES) - {library}:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, library, module)
    await operator.start_and_handle(kex)
    assert logs.find("(The official client|The asynchronous client|Pykube) is configured by the kubeconfig.")
    if library != "pykube":
        assert module.client.Configuration.get_default_copy().host == operator.cluster.url


@pytest.mark.usefixtures("no_libraries_are_imported")
async def test_all_imported_libraries_get_configured(operator: Operator, kex: Objects, logs: Logs) -> None:
    modules = [importlib.import_module(library) for library in LIBRARIES if library != "pykube"]
    for module in modules:
        importlib.import_module(f"{module.__name__}.client").Configuration.set_default(None)
    await operator.start_and_handle(kex)
    for module in modules:
        assert module.client.Configuration.get_default_copy().host == operator.cluster.url


@pytest.mark.usefixtures("no_libraries_are_imported")
async def test_one_broken_library_does_not_stop_the_others(
    operator: Operator, kex: Objects, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = importlib.import_module("kubernetes")
    importlib.import_module("kubernetes_asyncio")
    logs.expected.append("not configured")
    monkeypatch.setattr(broken.config, "load_kube_config", None)
    await operator.start_and_handle(kex)
    assert logs.find("One of the imported client libraries is not configured: The library kubernetes .* has failed.*")


@pytest.mark.usefixtures("no_libraries_are_imported")
@pytest.mark.parametrize("is_installed", [True, False])
async def test_auth_providers_are_explained_if_no_library_knows_them(
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
    change_kubeconfig: Callable[..., None],
    is_installed: bool,
) -> None:
    change_kubeconfig(user={"auth-provider": {"name": "gcp"}})
    if not is_installed:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    await operator.launch_in_vain(kopf.LoginError, "'gcp', which Kubernetes .* not support.*gke-gcloud-auth-plugin")


@pytest.mark.usefixtures("no_libraries_are_imported")
def test_auth_providers_are_for_the_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    parts = (b"{}", b'{"exp": 9999999999}', b"x")
    token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    provider = {"name": "oidc", "config": {"id-token": token}}
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": "https://host"}}],
                "users": [{"name": "x", "user": {"auth-provider": provider}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    info = login_by_default(retry=0)
    assert isinstance(info, kopf.ConnectionInfo)
    assert info.as_http_headers() == {"Authorization": f"Bearer {token}"}


@pytest.mark.usefixtures("no_libraries_are_imported")
@pytest.mark.parametrize(("path", "message"), [("/absent", "kubeconfig"), ("", "no credentials are found")])
async def test_without_any_credentials_it_exits_with_a_clear_error(
    operator: Operator,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    path: str,
    message: str,
) -> None:
    monkeypatch.setenv("KUBECONFIG", path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    logs.expected.append(message)
    await operator.launch_in_vain(kopf.LoginError, message)
    assert not logs.find(".*succeeded.*")


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (None, None, "Cannot log in: no credentials are found|has brought nothing"),
        ({"server": "https://localhost"}, None, "handler 'login' .* than kopf.ConnectionInfo, .*, or None: dict"),
        (None, kopf.PermanentError("the vault is sealed"), "the vault is sealed"),
    ],
    ids=["nothing", "something else", "an error"],
)
async def test_handlers_that_bring_no_credentials_are_a_clear_error(
    operator: Operator,
    calls: Calls,
    result: Any,
    error: Exception | None,
    message: str,
) -> None:
    kopf.on.login(id="login")(calls.noting("called", result=result, error=error))
    await operator.launch_in_vain(kopf.LoginError, message)


@pytest.mark.fastforward
async def test_temporary_errors_of_handlers_are_retried(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.login(id="login")
    async def login(retry: int, **kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append(retry)
        if retry < 3:
            raise kopf.TemporaryError("the vault is slow", delay=1)
        return kopf.login_with_kubeconfig(**kwargs)

    await operator.start_and_handle(kex)
    assert calls == [0, 1, 2, 3]


@pytest.mark.fastforward
async def test_attempts_can_be_limited(operator: Operator, calls: Calls) -> None:
    @kopf.on.login(retries=3, backoff=10, id="login")
    def login(retry: int, **_: Any) -> None:
        calls.append(retry)
        raise ConnectionError("the vault is down")

    await operator.launch_in_vain(kopf.LoginError, "the vault is down")
    assert calls == [0, 1, 2]


async def test_logs_of_frequent_logins_can_be_disabled(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @kopf.on.login(id="login")
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append("login")
        info = kopf.login_with_kubeconfig(**kwargs)
        return None if info is None else dataclasses.replace(info, priority=len(calls))

    for name in ("kopf.activities.authentication", "kopf._core.engines.activities"):
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    await operator.start()
    operator.cluster.faults.inject(401, verb="patch", resource="kopfexamples", times=1)
    await kex.create_and_wait()
    assert len(calls) == 2
    assert not logs.find(".*authentication.*")
    assert not logs.find(".*'login'.*")


async def test_one_of_several_handlers_is_enough(operator: Operator, kex: Objects) -> None:
    @kopf.on.login()
    async def bad(**_: Any) -> None:
        raise kopf.PermanentError("never")

    kopf.on.login(id="none")(do_nothing)
    kopf.on.login(id="good")(lambda **kwargs: kopf.login_with_kubeconfig(**kwargs))
    await operator.start_and_handle(kex)


async def test_refused_credentials_are_renewed_and_nothing_is_lost(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.login(id="login")
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append("login")
        info = kopf.login_with_kubeconfig(**kwargs)
        # Every login brings others: those that were refused once are not used again.
        return None if info is None else dataclasses.replace(info, priority=len(calls))

    fn = calls.noting(lambda name, **_: name)
    kopf.on.create("kopfexamples", id="b")(fn)
    kopf.on.create("kopfexamples", id="a")(fn)
    await operator.start()
    operator.cluster.faults.inject(401, verb="patch", resource="kopfexamples", times=2)
    await kex.create_and_wait()
    assert calls.items.count("obj") == 2
    assert calls.items.count("login") == 3
