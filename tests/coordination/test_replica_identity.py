from __future__ import annotations

import os
import pathlib
import socket

import pytest

from kopf._client.auth import service_account
from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._coordination.replica_identity import get_lease_namespace, get_replica_name, settle_lease_namespace
from kopf._settings.coordination import CoordinationSettings
from kopf._settings.settings import OperatorSettings


@pytest.fixture(autouse=True)
def _outside_of_pods(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    for name in ("POD_NAME", "POD_ID", "POD_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "My.Host")
    monkeypatch.setattr(service_account, "SERVICE_ACCOUNT_PATH", str(tmp_path))


def test_name_of_a_process_outside_of_pods() -> None:
    assert get_replica_name(CoordinationSettings()) == f"my-host-{os.getpid()}"


def test_name_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert get_replica_name(CoordinationSettings()) == "my-host"
    monkeypatch.setenv("POD_ID", "web-1")
    assert get_replica_name(CoordinationSettings()) == "web-1"
    monkeypatch.setenv("POD_NAME", "web-2")
    assert get_replica_name(CoordinationSettings()) == "web-2"


def test_name_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "web-2")
    assert get_replica_name(CoordinationSettings(identity="Me@Laptop/1")) == "me-laptop-1"


@pytest.mark.parametrize("identity", ["x" * 300 + "-1", "-" * 70, "ü"])
def test_names_fit(identity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = get_replica_name(CoordinationSettings(identity=identity))
    assert 0 < len(name) <= 63
    assert name[0].isalnum()
    assert name[-1].isalnum()


def test_long_names_keep_their_ends() -> None:
    assert get_replica_name(CoordinationSettings(identity="x" * 300 + "-7d9f-abcde")).endswith("x-7d9f-abcde")


def test_namespace(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    assert get_lease_namespace(CoordinationSettings(), None) == "default"
    assert get_lease_namespace(CoordinationSettings(), "of-context") == "of-context"
    (tmp_path / "namespace").write_text("of-account\n")
    assert get_lease_namespace(CoordinationSettings(), "of-context") == "of-account"
    monkeypatch.setenv("POD_NAMESPACE", "of-pod")
    assert get_lease_namespace(CoordinationSettings(), "of-context") == "of-pod"
    assert get_lease_namespace(CoordinationSettings(namespace="of-settings"), "of-context") == "of-settings"


async def test_namespace_is_settled_by_the_credentials() -> None:
    settings = CoordinationSettings()
    vault = Vault(OperatorSettings())
    vault.populate([ConnectionInfo(server="https://localhost", default_namespace="of-context")])
    await settle_lease_namespace(settings, vault)
    assert settings.namespace == "of-context"
    await vault.close()
