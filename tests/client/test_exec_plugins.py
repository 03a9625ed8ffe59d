"""Exec plugins of kubeconfigs: real scripts, called as Kubernetes documents it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import os
import pathlib
import subprocess
import sys
from typing import Any

import psutil
import pytest
import yaml

from kopf._client.auth.credentials import ConnectionInfo, LoginError, PluginError
from kopf._client.auth.exec_plugins import run_plugin
from kopf._client.auth.kubeconfig import Kubeconfig, login_with_kubeconfig, make_connection_info
from tests.client.plugins import V1, V1BETA1, Plugin
from tests.patience import PATIENCE

SOURCES = os.pathsep.join(sys.path)
PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


@pytest.fixture
def plugin(tmp_path: pathlib.Path) -> Plugin:
    plugin = Plugin(tmp_path)
    plugin.bring(token="tkn")
    return plugin


def run(stanza: dict[str, Any], cluster: dict[str, Any] | None = None, timeout: float = 60) -> Any:
    return run_plugin(stanza, cluster or {"server": "https://host"}, user="usr", timeout=timeout)


def make_kubeconfig(user: dict[str, Any]) -> Kubeconfig:
    context = {"cluster": "cls", "user": "usr"}
    cluster = {"server": "https://host"}
    return Kubeconfig(current_context="ctx", contexts={"ctx": context}, clusters={"cls": cluster}, users={"usr": user})


def login(
    stanza: dict[str, Any], folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *, server: str = "https://host:6443"
) -> ConnectionInfo:
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "ctx",
                "contexts": [{"name": "ctx", "context": {"cluster": "cls", "user": "usr"}}],
                "clusters": [{"name": "cls", "cluster": {"server": server}}],
                "users": [{"name": "usr", "user": {"exec": stanza}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    info = login_with_kubeconfig()
    assert info is not None
    return info


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_tokens(plugin: Plugin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, api_version: str) -> None:
    plugin.bring(api_version=api_version, token="tkn", expirationTimestamp="2030-12-31T23:59:59Z")
    info = login(plugin.make_stanza(apiVersion=api_version), tmp_path, monkeypatch)
    assert info.server == "https://host:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer tkn"}
    assert info.expiration == datetime.datetime(2030, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


def test_client_certificates(plugin: Plugin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin.bring(clientCertificateData=PEM, clientKeyData=PEM)
    info = login(plugin.make_stanza(), tmp_path, monkeypatch)
    assert (info.certificate_data, info.private_key_data) == (PEM, PEM)
    assert info.token is None
    assert info.expiration is None


def test_certificates_of_the_kubeconfig_remain(plugin: Plugin, tmp_path: pathlib.Path) -> None:
    user = {"exec": plugin.make_stanza(), "client-certificate": "/client.crt"}
    info = make_connection_info(make_kubeconfig(user))
    assert (info.token, info.certificate_path) == ("tkn", "/client.crt")


@pytest.mark.parametrize("static", [{"token": "t"}, {"username": "u", "password": "p"}, {"tokenFile": "/token"}])
def test_kubeconfigs_that_do_not_need_the_plugin(plugin: Plugin, static: dict[str, Any]) -> None:
    info = make_connection_info(make_kubeconfig({"exec": plugin.make_stanza(), **static}))
    assert [info.token, info.token_path, info.username].count(None) == 2
    assert plugin.calls == []


def test_what_the_plugin_gets(plugin: Plugin) -> None:
    env = [{"name": "PROFILE", "value": "prod"}, {"name": "NUMBER", "value": 1}]
    run(plugin.make_stanza(args=["get-token", "-n", 1], env=env))
    [call] = plugin.calls
    assert call["args"] == ["get-token", "-n", "1"]
    assert call["env"]["PROFILE"] == "prod"
    assert call["env"]["NUMBER"] == "1"
    assert "PATH" in call["env"]
    assert call["stdin"] == ""
    assert plugin.info == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}


@pytest.mark.parametrize("with_file", [True, False])
def test_what_the_plugin_is_told_of_the_cluster(plugin: Plugin, tmp_path: pathlib.Path, with_file: bool) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    (tmp_path / "ca.crt").write_text(PEM)
    authority = {"certificate-authority-data": data}
    if with_file:
        authority = {"certificate-authority": str(tmp_path / "ca.crt")}
    cluster = {
        "server": "https://host:6443",
        "tls-server-name": "name",
        "proxy-url": "http://proxy",
        **authority,
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
            {"name": "others", "extension": {"secret": "y"}},
        ],
    }
    run(plugin.make_stanza(provideClusterInfo=True), cluster)
    assert plugin.info["spec"]["cluster"] == {
        "server": "https://host:6443",
        "tls-server-name": "name",
        "proxy-url": "http://proxy",
        "certificate-authority-data": data,
        "config": {"audience": "x"},
    }


def test_unreadable_authorities(plugin: Plugin) -> None:
    with pytest.raises(LoginError, match="certificate authority /absent cannot be read: No such file"):
        run(plugin.make_stanza(provideClusterInfo=True), {"server": "x", "certificate-authority": "/absent"})


def test_commands_relative_to_the_kubeconfig(
    plugin: Plugin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert login(plugin.make_stanza(command="./plugin"), tmp_path, monkeypatch).token == "tkn"


def test_commands_in_the_path(plugin: Plugin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert login(plugin.make_stanza(command="plugin"), tmp_path, monkeypatch).token == "tkn"


@pytest.mark.parametrize("mode", ["Never", "IfAvailable", None])
def test_plugins_are_never_interactive(plugin: Plugin, mode: str | None) -> None:
    run(plugin.make_stanza(interactiveMode=mode))
    assert plugin.info["spec"]["interactive"] is False


def test_those_that_need_a_terminal_are_refused(plugin: Plugin) -> None:
    with pytest.raises(LoginError, match="'.*plugin' of the user 'usr' needs a human at a terminal .*service account"):
        run(plugin.make_stanza(interactiveMode="Always"))
    assert plugin.calls == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": ""}, "has no command"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1.* only .*v1 and .*v1beta1.*update the"),
        ({"apiVersion": None}, "is for None, but only"),
        ({"interactiveMode": "Sometimes"}, "unknown interactiveMode 'Sometimes'; it can be one of Never, "),
    ],
)
def test_unusable_stanzas(plugin: Plugin, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoginError, match=message):
        run(plugin.make_stanza(**fields))
    assert plugin.calls == []


def test_absent_commands(plugin: Plugin) -> None:
    stanza = plugin.make_stanza(command="absent-plugin", installHint="Install it:\n\n  brew install absent\n")
    error = (
        r"plugin 'absent-plugin' of the user 'usr' is not found: install the command. "
        r"The hint of the kubeconfig: Install it: brew install absent$"
    )
    with pytest.raises(LoginError, match=error):
        run(stanza)
    del stanza["installHint"]
    with pytest.raises(LoginError, match=r"install the command\.$"):
        run(stanza)


def test_not_executable_commands(plugin: Plugin) -> None:
    plugin.path.chmod(0o644)
    with pytest.raises(LoginError, match="cannot be run: Permission denied"):
        run(plugin.make_stanza())


def test_failures(plugin: Plugin) -> None:
    plugin.behave("SECRET", stderr="Unable to locate\n credentials.", code=255)
    stanza = plugin.make_stanza(installHint="Log in first.")
    error = r"has failed with the exit code 255, saying: Unable to locate credentials.. The hint .*: Log in first."
    with pytest.raises(PluginError, match=error) as info:
        run(stanza)
    assert "SECRET" not in str(info.value)


def test_long_errors_are_cut(plugin: Plugin) -> None:
    plugin.behave(stderr="x" * 10_000 + " in the end", code=1)
    with pytest.raises(PluginError) as info:
        run(plugin.make_stanza())
    assert str(info.value).endswith("in the end.")
    assert len(str(info.value)) < 1500


def test_hanging_plugins(plugin: Plugin) -> None:
    plugin.behave(stderr="Open this page: https://login", delay=1000)
    for timeout in (1, 10, 100):  # until the machine is fast enough for it to say something
        error = f"not finished in {timeout} seconds. Does it wait for a person to log in"
        with pytest.raises(PluginError, match=error) as info:
            run(plugin.make_stanza(), timeout=timeout)
        if "It says" in str(info.value):
            break
    assert "It says: Open this page: https://login" in str(info.value)


def test_plugins_do_not_outlive_the_process(plugin: Plugin, tmp_path: pathlib.Path) -> None:
    plugin.behave(delay=1000)
    code = f"""if True:
        import pathlib, threading, time
        from kopf._client.auth.exec_plugins import run_plugin
        args = ({plugin.make_stanza()!r}, {{"server": "https://host"}})
        threading.Thread(target=run_plugin, args=args, kwargs={{"user": "usr"}}, daemon=True).start()
        calls = pathlib.Path({str(tmp_path)!r}, "calls")
        while not (calls.exists() and calls.stat().st_size):
            time.sleep(0.01)
    """
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": SOURCES}
    )
    pid = int(plugin.calls[0]["pid"])
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "0 bytes that are not JSON"),
        ("SECRET!", "7 bytes that are not JSON"),
        ("[1]", "not an ExecCredential"),
        ('{"kind": "Pod"}', "not an ExecCredential"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{V1BETA1}"}}', f"responded in '{V1BETA1}', while '{V1}'"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{V1}"}}', "its ExecCredential has no status"),
    ],
)
def test_unusable_outputs(plugin: Plugin, output: str, message: str) -> None:
    plugin.behave(output)
    with pytest.raises(LoginError, match=message) as info:
        run(plugin.make_stanza())
    assert "SECRET!" not in str(info.value)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "neither a token nor a client certificate"),
        ({"clientKeyData": PEM}, "a client certificate without its key, or a key without"),
        ({"token": "t", "expirationTimestamp": "soon"}, "unusable expirationTimestamp: .*soon"),
        ({"token": "t", "expirationTimestamp": 1}, "unusable expirationTimestamp: 1 is not a string"),
    ],
)
def test_unusable_credentials(plugin: Plugin, status: dict[str, Any], message: str) -> None:
    plugin.bring(**status)
    with pytest.raises(LoginError, match=message):
        run(plugin.make_stanza())


async def test_blocking_of_the_event_loop_is_reported(plugin: Plugin, caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.to_thread(run, plugin.make_stanza())
    assert caplog.messages == []
    run(plugin.make_stanza())
    [message] = caplog.messages
    assert "runs in the event loop, and blocks the operator" in message


def test_secrets_are_not_shown(plugin: Plugin) -> None:
    plugin.bring(token="SECRET", clientCertificateData="SECRET", clientKeyData="SECRET")
    assert "SECRET" not in repr(run(plugin.make_stanza()))


def test_the_same_as_kubectl(
    plugin: Plugin, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kubectl: str
) -> None:
    """The real kubectl tells the plugin the same, and so it understands the same kubeconfig."""
    stanza = plugin.make_stanza(provideClusterInfo=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    login(stanza, tmp_path, monkeypatch, server="https://127.0.0.1:1")
    ours = plugin.info
    command = [kubectl, "get", "--raw", "/version"]
    subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert len(plugin.calls) == 2
    assert plugin.info == {**ours, "spec": {**ours["spec"], "cluster": {**ours["spec"]["cluster"], "config": None}}}
