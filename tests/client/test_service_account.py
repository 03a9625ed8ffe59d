from __future__ import annotations

import pathlib

import pytest

from kopf._client.auth.service_account import login_with_service_account


@pytest.fixture
def directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_text("PEM")
    (tmp_path / "namespace").write_text("ns1\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return tmp_path


def test_not_in_a_pod(tmp_path: pathlib.Path) -> None:
    assert login_with_service_account(directory=tmp_path) is None


def test_in_a_pod(directory: pathlib.Path) -> None:
    info = login_with_service_account(directory=directory, logger=None)  # any kwargs of handlers are accepted
    assert info is not None
    assert info.server == "https://10.0.0.1:6443"
    assert info.ca_path == str(directory / "ca.crt")
    assert info.default_namespace == "ns1"
    assert info.token is None
    assert info.token_path == str(directory / "token")
    assert info.as_http_headers() == {"Authorization": "Bearer secret"}


def test_only_the_token_is_mandatory(directory: pathlib.Path) -> None:
    (directory / "ca.crt").unlink()
    (directory / "namespace").unlink()
    info = login_with_service_account(directory=directory)
    assert info is not None
    assert info.ca_path is None
    assert info.default_namespace is None


def test_addresses_of_ipv6(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    info = login_with_service_account(directory=directory)
    assert info is not None
    assert info.server == "https://[fd00::1]:6443"


def test_no_variables_of_services(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    info = login_with_service_account(directory=directory)
    assert info is not None
    assert info.server == "https://kubernetes.default.svc"
