"""``kopf freeze`` & ``kopf resume``, and the options of ``kopf run`` for the peering."""

from __future__ import annotations

import getpass
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE, Starter
from tests.cli.processes import ROOT
from tests.forging import Forge

HANDLERS = str(EXAMPLE / "handlers.py")
ME = f"{getpass.getuser()}@{socket.gethostname()}"
OBJ: Mapping[str, Any] = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "obj1"},
    "spec": {"duration": "1m"},
}


@pytest.fixture
def cluster(cluster: LocalCluster) -> LocalCluster:
    """The same cluster, with the peering objects."""
    cluster.apply(ROOT / "examples" / "peering" / "crds.yaml")
    cluster.apply(ROOT / "examples" / "peering" / "default.yaml")
    return cluster


def get_records(cluster: LocalCluster, *, namespace: str | None = None, name: str = "default") -> Any:
    scope = "clusterkopfpeerings" if namespace is None else f"namespaces/{namespace}/kopfpeerings"
    request = urllib.request.Request(
        f"{cluster.url}/apis/kopf.dev/v1/{scope}/{name}", headers={"Authorization": f"Bearer {cluster.token}"}
    )
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    with urllib.request.urlopen(request, context=context) as response:
        return json.load(response).get("status") or {}


Invoke = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def invoke(cluster: LocalCluster, forge: Forge) -> Invoke:
    """Run a command for the cluster, with these variables."""

    def invoke(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return forge.run(*args, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), **env})

    return invoke


# ------------------------------------------------------------------ freezing & resuming


def test_operators_are_frozen_and_resumed(start: Starter, cluster: LocalCluster, invoke: Invoke) -> None:
    with start("run", "--verbose", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Keep-alive in 'default' cluster-wide: ok.")
        result = invoke("freeze", "-m", "we deploy", "-t", "3600")
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""  # nothing but the answer
        assert f"The operators of the peering 'default' cluster-wide are paused by {ME} until " in result.stdout
        process.wait_for("Pausing operations in favour of .*'we deploy'")
        cluster.apply(OBJ)
        result = invoke("resume")
        assert result.returncode == 0, result.stderr
        assert "The operators of the peering 'default' cluster-wide are no longer paused by " in result.stdout
        process.wait_for("Resuming operations after the pause.")
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        assert process.stop() == 0
    assert get_records(cluster) == {}


def test_freezing_with_all_options(cluster: LocalCluster, invoke: Invoke) -> None:
    manifest = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "example"}}
    for name in ("ns1", "ns2", "other"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        cluster.apply({**manifest, "metadata": {"name": "example", "namespace": name}})
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns0"}})  # without the object
    options = ["-n", "ns?", "--peering", "example", "--id", "me"]
    result = invoke("freeze", *options, "--priority", "7", "--lifetime", "30", "--message", "hi")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2
    for name in ("ns1", "ns2"):
        record = get_records(cluster, namespace=name, name="example")["me"]
        assert {**record, "lastseen": ""} == {"priority": 7, "lifetime": 30, "message": "hi", "lastseen": ""}
    assert get_records(cluster, namespace="other", name="example") == {}
    invoke("freeze", *options)
    assert "message" not in get_records(cluster, namespace="ns1", name="example")["me"], "that was the earlier one"
    result = invoke("resume", *options)
    assert result.returncode == 0, result.stderr
    assert get_records(cluster, namespace="ns1", name="example") == {}
    assert get_records(cluster, namespace="ns2", name="example") == {}


def test_freezing_by_environment_variables(cluster: LocalCluster, invoke: Invoke) -> None:
    env = {
        "KOPF_FREEZE_ID": "me",
        "KOPF_FREEZE_NAMESPACE": "default",
        "KOPF_FREEZE_PRIORITY": "8",
        "KOPF_FREEZE_PEERING": "default",
        "KOPF_FREEZE_LIFETIME": "9",
        "KOPF_FREEZE_MESSAGE": "hi",
    }
    result = invoke("freeze", **env)
    assert result.returncode == 0, result.stderr
    record = get_records(cluster, namespace="default")["me"]
    assert (record["priority"], record["lifetime"], record["message"]) == (8, 9, "hi")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["freeze", "-A", "-n", "default"], 2, "Either --all-namespaces or --namespace can be used, not both."),
        (
            ["resume", "-P", "absent"],
            1,
            "The peering object 'absent' cluster-wide does not exist (clusterkopfpeerings.v1.",
        ),
        (["freeze", "-n", "default", "-P", "absent"], 1, "The peering object 'absent' in 'default' does not exist"),
        (["resume", "-n", "ns*"], 1, "There are no namespaces that match ns*."),
        (["freeze", "-n", ""], 2, "The pattern of namespaces is empty"),
    ],
)
def test_mistakes_are_explained(args: list[str], code: int, message: str, invoke: Invoke) -> None:
    result = invoke(*args)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("args", "verb", "resource", "rule"),
    [
        (["freeze"], "patch", "clusterkopfpeerings", "[kopf.dev], resources: [clusterkopfpeerings], verbs: [patch]"),
        (["resume"], "patch", "clusterkopfpeerings", "[kopf.dev], resources: [clusterkopfpeerings], verbs: [patch]"),
        (["freeze", "-n", "*"], "list", "namespaces", "[''], resources: [namespaces], verbs: [list]"),
    ],
)
def test_missing_permissions_are_named(
    args: list[str], verb: str, resource: str, rule: str, cluster: LocalCluster, invoke: Invoke
) -> None:
    cluster.faults.inject(403, verb=verb, resource=resource)
    result = invoke(*args)
    assert result.returncode == 1
    assert f"You need this rule: - {{apiGroups: {rule}}}" in result.stderr


def test_freezing_of_nobody_is_said(cluster: LocalCluster, invoke: Invoke, start: Starter) -> None:
    """Replicas do not take part in the peering, unless they are told to; dead operators do no more."""
    dead = {"priority": 1, "lifetime": 1, "lastseen": "2020-01-01T00:00:00+00:00"}
    peering = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
    cluster.apply({**peering, "status": {"dead": dead, "odd": 5}})
    with start("run", "--leader-election=op", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Leading as")
        result = invoke("freeze")
        assert (result.returncode, len(result.stdout.splitlines())) == (0, 1)
        assert "No operator takes part in the peering 'default' cluster-wide now" in result.stderr
        assert invoke("resume").stderr == ""
        assert process.stop() == 0


def test_missing_kinds_are_explained(tmp_path: pathlib.Path, invoke: Invoke) -> None:
    with LocalCluster() as cluster:
        result = invoke("freeze", KUBECONFIG=str(cluster.kubeconfig))
    assert result.returncode == 1
    assert "The kind ClusterKopfPeering is not defined in the cluster" in result.stderr


# ------------------------------------------------------------------ running


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        ([], {}, 0),
        (["-p", "-5"], {}, -5),
        ([], {"KOPF_RUN_PRIORITY": "5"}, 5),
        (["--dev"], {"KOPF_RUN_PRIORITY": "5"}, 666),
        ([], {"KOPF_RUN_DEV": "true", "KOPF_RUN_PRIORITY": "5"}, 666),
        (["--dev", "--priority=5"], {}, 5),
    ],
    ids=str,
)
def test_priorities(start: Starter, cluster: LocalCluster, args: list[str], env: dict[str, str], expected: int) -> None:
    with start("run", "--verbose", *args, HANDLERS, kubeconfig=cluster.kubeconfig, **env) as process:
        process.wait_for("Keep-alive in 'default' cluster-wide: ok.")
        [record] = get_records(cluster).values()
        assert process.stop() == 0
    assert record["priority"] == expected


def test_custom_peering_is_mandatory(start: Starter, cluster: LocalCluster) -> None:
    with start("run", "-v", "--peering=example", "-n", "default", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Pausing operations: the peering 'example' in 'default' is mandatory, and it is absent.")
        cluster.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "example"}})
        process.wait_for("Resuming operations after the pause.")
        process.wait_for("Keep-alive in 'example' in 'default': ok.")


def test_standalone(start: Starter, cluster: LocalCluster, invoke: Invoke) -> None:
    assert invoke("freeze", "-t", "3600").returncode == 0
    with start("run", "--standalone", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        cluster.apply(OBJ)
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
    assert get_records(cluster).keys() == {ME}


def test_killed_operators_are_replaced(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    """They cannot withdraw, so it takes as long as they are believed to be alive."""
    (tmp_path / "quick.py").write_text(
        "import kopf\n"
        "@kopf.on.startup()\n"
        "def startup_fn(settings, **_):\n"
        "    settings.peering.lifetime = 2\n"
        "@kopf.on.create('kopfexamples')\n"
        "def create_fn(**_):\n"
        "    pass\n"
    )
    with start("run", "--priority=5", "quick.py", kubeconfig=cluster.kubeconfig) as victim:
        victim.wait_for("authentication has finished")
        other = start("run", "--verbose", "quick.py", kubeconfig=cluster.kubeconfig, log="other.log")
        with other as process:
            process.wait_for("Pausing operations in favour of ")
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            cluster.apply(OBJ)
            process.wait_for("Resuming operations after the pause.")
            process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
            assert process.stop() == 0
