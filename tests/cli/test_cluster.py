from __future__ import annotations

import base64
import json
import pathlib
import re
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

import click
import pytest
import yaml

from kopf.cli.cluster import parse_user
from tests.cli.conftest import Starter
from tests.cli.processes import Process
from tests.patience import PATIENCE
from tests.ports import find_free_port


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_cluster_lives_until_stopped(start: Starter, signum: signal.Signals) -> None:
    with start("cluster") as process:
        kubeconfig = pathlib.Path(process.wait_for("export KUBECONFIG=(.+)$")[1])
        url = process.wait_for("The local cluster is up: (.+)$")[1]
        assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == url
        process.send_signal(signum)
        assert process.wait() == 0
        assert "Traceback" not in process.output
        assert not kubeconfig.exists()


def test_cluster_on_a_specific_port(start: Starter, tmp_path: pathlib.Path) -> None:
    port = find_free_port()
    path = tmp_path / "my-kubeconfig"
    with start("cluster", f"--port={port}", f"--kubeconfig={path}") as process:
        assert process.wait_for("The local cluster is up: (.+)$")[1] == f"https://127.0.0.1:{port}"
        assert process.wait_for("export KUBECONFIG=(.+)$")[1] == str(path)
        with start("cluster", f"--port={port}") as other:
            assert other.wait() == 1
            assert "Traceback" not in other.output
            assert "Error: Cannot start the local cluster: " in other.output


def test_cluster_with_roles_and_managed_fields(start: Starter) -> None:
    with start("cluster", "--authorization=rbac", "--managed-fields") as process:
        config = yaml.safe_load(pathlib.Path(process.wait_for("export KUBECONFIG=(.+)$")[1]).read_text())
        ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        url = f"{config['clusters'][0]['cluster']['server']}/api/v1/namespaces/default"
        context = ssl.create_default_context(cadata=ca)
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as response:
            assert json.load(response)["metadata"]["managedFields"]
        other = urllib.request.Request(url, headers={**headers, "Impersonate-User": "somebody"})
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(other, context=context)
        refused.value.close()


def test_cluster_with_users(start: Starter, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "jane.yaml"
    with start("cluster", f"--user=jane:devs,ops={path}") as process:
        process.wait_for("export KUBECONFIG=(.+)$")
        assert list(yaml.safe_load(path.read_text())["users"][0]["user"]) == [
            "client-certificate-data",
            "client-key-data",
        ]
        assert path.stat().st_mode & 0o777 == 0o600
        assert process.stop() == 0
        assert not path.exists()
    with start("cluster", "--user=jane") as process:
        assert process.wait() == 2
        assert "does not have the form NAME[:GROUP,...]=FILE" in process.output


@pytest.mark.parametrize(
    ("text", "name", "groups"),
    [
        ("jane", "jane", ()),
        ("jane:devs,ops", "jane", ("devs", "ops")),
        ("system:serviceaccount:default:operator", "system:serviceaccount:default:operator", ()),
        ("system:kube-scheduler", "system:kube-scheduler", ()),
    ],
)
def test_names_of_users(text: str, name: str, groups: tuple[str, ...]) -> None:
    assert parse_user(text) == (name, groups)


@pytest.mark.parametrize("text", ["", ":", "jane:", ":devs"])
def test_wrong_names_of_users(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"does not have the form NAME\[:GROUP,...\]"):
        parse_user(text)


@pytest.mark.parametrize("option", ["--kubeconfig=kubeconfig.yaml", "--user=jane=kubeconfig.yaml"])
def test_cluster_does_not_overwrite_others(
    start: Starter, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kubeconfig.yaml"
    path.write_text("apiVersion: v1\nkind: Config\ncurrent-context: production\n")
    with start("cluster", option) as process:
        assert process.wait() == 2
        assert f"{str(path)!r} is not the kubeconfig of a local cluster" in process.output
    assert "production" in path.read_text()
    with start("cluster", option.replace("kubeconfig.yaml", "absent/kubeconfig.yaml")) as process:
        assert process.wait() == 2
        assert f"there is no directory {str(tmp_path / 'absent')!r}" in process.output


@pytest.mark.parametrize("option", ["--audit=/proc/file", "--user=jane=/proc/file", "--kubeconfig=/proc/file"])
def test_files_that_cannot_be_written_are_reported_at_once(start: Starter, option: str) -> None:
    with start("cluster", option) as process:
        assert process.wait() == 1
        assert re.match("Error: Cannot start the local cluster: .*No such file or directory: '/proc/", process.output)


def test_cluster_overwrites_what_a_killed_one_has_left(
    start: Starter, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with start("cluster", "--kubeconfig=kubeconfig.yaml", "--user=jane=jane.yaml") as process:
            # The absolute path: the other terminal can be in another directory.
            assert process.wait_for("export KUBECONFIG=(.+)$")[1] == str(tmp_path / "kubeconfig.yaml")
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert (tmp_path / "kubeconfig.yaml").exists()
        assert (tmp_path / "jane.yaml").exists()


def test_cluster_works_with_kubectl(start: Starter, kubectl: str) -> None:
    with start("cluster") as process:
        kubeconfig = process.wait_for("export KUBECONFIG=(.+)$")[1]
        result = subprocess.run(
            [kubectl, f"--kubeconfig={kubeconfig}", "get", "namespaces", "-o", "name"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert "namespace/default\n" in result.stdout


def test_cluster_with_tokens(start: Starter) -> None:
    name = "system:serviceaccount:default:operator"
    with start("cluster", "--authorization=rbac", f"--token={name}=a=b") as process:
        config = yaml.safe_load(pathlib.Path(process.wait_for("export KUBECONFIG=(.+)$")[1]).read_text())
        ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        request = urllib.request.Request(
            f"{config['clusters'][0]['cluster']['server']}/api/v1/pods", headers={"Authorization": "Bearer a=b"}
        )
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(request, context=ssl.create_default_context(cadata=ca))
        assert f'User \\"{name}\\" cannot list' in refused.value.read().decode()
        refused.value.close()
    with start("cluster", "--token=jane") as process:
        assert process.wait() == 2
        assert "does not have the form NAME[:GROUP,...]=TOKEN" in process.output


def ask(process: Process, path: str, body: Any = None) -> Any:
    """Send a request to the cluster as its administrator, with the body if there is one."""
    config = yaml.safe_load(pathlib.Path(process.wait_for("export KUBECONFIG=(.+)$")[1]).read_text())
    ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{config['clusters'][0]['cluster']['server']}{path}",
        headers=headers,
        data=None if body is None else json.dumps(body).encode(),
    )
    with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=ca)) as response:
        return json.load(response)


def test_cluster_with_controllers_only(start: Starter) -> None:
    labels, spec = {"app": "web"}, {"containers": [{"name": "main", "image": "main"}]}
    with start("cluster", "--simulate-controllers") as process:
        ask(
            process,
            "/apis/apps/v1/namespaces/default/replicasets",
            {
                "metadata": {"name": "web"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            },
        )
        deadline = time.monotonic() + PATIENCE
        while not (pods := ask(process, "/api/v1/pods")["items"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [pod["status"]["phase"] for pod in pods] == ["Pending"]
        assert ask(process, "/api/v1/nodes")["items"] == []


def test_cluster_with_late_events_and_conflicts(start: Starter) -> None:
    with start("cluster", "--watch-lag=0-0.5", "--late-conflicts=0.1,0.3", "--seed=7") as process:
        faults = ask(process, "/_kopf/faults")
    assert faults["watch_lag"] == [0, 0.5]
    [rule] = faults["rules"]
    assert (rule["status"], rule["guarded"], rule["rate"], rule["latency"]) == (409, True, 0.1, 0.3)


def test_cluster_with_feature_gates(start: Starter) -> None:
    selector = "shardRange(object.metadata.uid,%20'0x0000000000000000',%20'0x8000000000000000')"
    with start("cluster", "--feature-gates", "ShardedListAndWatch=true") as process:
        listed = ask(process, f"/api/v1/configmaps?shardSelector={selector}")
    assert listed["metadata"]["shardInfo"] == {"selector": selector.replace("%20", " ")}


def test_unknown_feature_gates(start: Starter) -> None:
    with start("cluster", "--feature-gates", "Magic=true") as process:
        assert process.wait() == 1
        assert "Cannot start the local cluster: unrecognized feature gate: Magic" in process.output


@pytest.mark.parametrize(
    "option",
    [
        "--watch-lag=x",
        "--watch-lag=1-0",
        "--watch-lag=nan",
        "--late-conflicts=2",
        "--late-conflicts=0.1,-1",
        "--late-conflicts=a,b",
        "--feature-gates=ShardedListAndWatch",
        "--feature-gates=ShardedListAndWatch=yes",
    ],
)
def test_wrong_trouble(start: Starter, option: str) -> None:
    with start("cluster", option) as process:
        assert process.wait() == 2
        assert "does not have the form" in process.output
