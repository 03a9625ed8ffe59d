from __future__ import annotations

import base64
import os
import pathlib
import textwrap
from typing import Any

import pytest
import yaml

from kopf._client.auth.credentials import ConnectionInfo, LoginError
from kopf._client.auth.kubeconfig import AuthProviderError, login_with_kubeconfig

PEM = b"-----BEGIN CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A home directory with no kubeconfig."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def make_config(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    current_context: str = "ctx",
    **fields: Any,
) -> dict[str, Any]:
    return {
        "current-context": current_context,
        "contexts": [{"name": "ctx", "context": {"cluster": "cls", "user": "usr", **(context or {})}}],
        "clusters": [{"name": "cls", "cluster": {"server": "https://host:6443", **(cluster or {})}}],
        "users": [{"name": "usr", "user": user or {}}],
        **fields,
    }


def write(path: pathlib.Path, content: dict[str, Any]) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def log_in(home: pathlib.Path, config: dict[str, Any] | None = None) -> ConnectionInfo:
    """Log in, by this kubeconfig in the default location if there is one."""
    if config is not None:
        write(home / ".kube" / "config", config)
    info = login_with_kubeconfig(logger=None, settings=None)  # any kwargs of handlers are accepted
    assert info is not None
    return info


def test_no_config_at_all() -> None:
    assert login_with_kubeconfig() is None


def test_absent_files_are_skipped(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["/absent/1", "", str(home / "absent")]))
    assert login_with_kubeconfig() is None


@pytest.mark.parametrize("text", ["", "kind: Config\napiVersion: v1\nclusters: []\ncontexts: null\n"])
def test_files_with_nothing_inside(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = home / "config"
    path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert login_with_kubeconfig() is None


def test_default_location(home: pathlib.Path) -> None:
    assert log_in(home, make_config()).server == "https://host:6443"


def test_all_fields(home: pathlib.Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "proxy-url": "http://proxy:3128", "tls-server-name": "name"}
    user = {"username": "u", "password": "p", "token": "t"}
    info = log_in(home, make_config(cluster, user, {"namespace": "ns1"}))
    assert info.insecure is True
    assert info.proxy_url == "http://proxy:3128"
    assert info.tls_server_name == "name"
    assert (info.username, info.password, info.token) == ("u", "p", "t")
    assert info.default_namespace == "ns1"


def test_contexts_without_users(home: pathlib.Path) -> None:
    config = make_config(users=[])
    del config["contexts"][0]["context"]["user"]
    info = log_in(home, config)
    assert info.as_http_headers() == {}


def test_paths_are_relative_to_their_file(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"certificate-authority": "ca.crt"}
    user = {"client-certificate": "../client.crt", "client-key": "/abs/client.key", "tokenFile": "token"}
    write(home / "sub" / "config", make_config(cluster, user))
    monkeypatch.chdir(home)
    monkeypatch.setenv("KUBECONFIG", os.path.join("sub", "config"))
    info = log_in(home)
    assert info.ca_path == str(home / "sub" / "ca.crt")
    assert info.certificate_path == str(home / "sub" / ".." / "client.crt")
    assert info.private_key_path == "/abs/client.key"
    assert info.token_path == str(home / "sub" / "token")


def test_data_is_decoded_and_overrides_files(home: pathlib.Path) -> None:
    data = base64.b64encode(PEM).decode()
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": data}
    user = {"client-certificate-data": data, "client-key-data": data, "client-key": "client.key"}
    info = log_in(home, make_config(cluster, user))
    assert (info.ca_path, info.ca_data) == (None, PEM)
    assert info.certificate_data == PEM
    assert (info.private_key_path, info.private_key_data) == (None, PEM)


def test_token_file_overrides_the_token(home: pathlib.Path) -> None:
    (home / "token").write_text("fresh\n")
    info = log_in(home, make_config(user={"token": "stale", "tokenFile": "../token"}))
    assert info.token is None
    assert info.as_http_headers() == {"Authorization": "Bearer fresh"}


def test_first_occurrence_wins(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [
        write(home / "1" / "config", {"users": [{"name": "usr", "user": {"tokenFile": "token"}}]}),
        home / "absent",
        write(home / "2" / "config", make_config(user={"token": "unused"})),
        write(home / "3" / "config", make_config({"server": "https://unused"}, current_context="unused")),
    ]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))
    info = log_in(home)
    assert info.server == "https://host:6443"
    assert info.token is None
    assert info.token_path == str(home / "1" / "token")


def test_context_of_one_file_and_the_rest_of_another(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(user={"token": "t"})
    paths = [
        write(home / "1", {"current-context": config.pop("current-context")}),
        write(home / "2", {"contexts": config.pop("contexts")}),
        write(home / "3", config),
    ]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))
    assert log_in(home).token == "t"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (make_config(current_context=""), "No current context in .*config: choose one"),
        (make_config(current_context="other"), "context 'other' is not found in .*; the known ones are: 'ctx'"),
        (make_config(clusters=[]), "cluster 'cls' is not found in .*; the known ones are: none"),
        (make_config(users=[]), "user 'usr' is not found"),
        (make_config({"server": ""}), "cluster 'cls' has no server"),
        (make_config(users=[{"user": {}}]), "an entry with no name in 'users'"),
        (make_config({"certificate-authority-data": "!"}), "context 'ctx' of .* is unusable: .* neither PEM"),
        (make_config(user={"as": "root", "token": "t"}), "user 'usr' .* impersonates .* .'as'.*kubectl create"),
    ],
)
def test_inconsistent_configs(home: pathlib.Path, config: dict[str, Any], message: str) -> None:
    write(home / ".kube" / "config", config)
    with pytest.raises(LoginError, match=message):
        login_with_kubeconfig()


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("gcp", "gke-gcloud-auth-plugin"),
        ("azure", "kubelogin convert-kubeconfig"),
        ("oidc", "kubectl oidc-login"),
        ("openstack", "exec plugin, as it is said in the documentation of your cluster's provider"),
    ],
)
def test_auth_providers_are_refused_with_an_advice(home: pathlib.Path, provider: str, message: str) -> None:
    write(home / ".kube" / "config", make_config(user={"auth-provider": {"name": provider}}))
    with pytest.raises(AuthProviderError, match=f"user 'usr' .* auth-provider '{provider}', .*{message}"):
        login_with_kubeconfig()


@pytest.mark.parametrize(
    ("text", "message"), [("{", "config is not valid YAML"), ("- 1", "config is not a mapping, but list")]
)
def test_malformed_files(home: pathlib.Path, text: str, message: str) -> None:
    path = home / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(text))
    with pytest.raises(LoginError, match=message):
        login_with_kubeconfig()


def test_unreadable_files(home: pathlib.Path) -> None:
    (home / ".kube" / "config").mkdir(parents=True)
    with pytest.raises(LoginError, match="config cannot be read: Is a directory"):
        login_with_kubeconfig()


def test_missing_files_are_told_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent.yaml"))
    assert login_with_kubeconfig() is None
    assert caplog.messages == [f"The KUBECONFIG variable names no existing file: {tmp_path / 'absent.yaml'}"]
