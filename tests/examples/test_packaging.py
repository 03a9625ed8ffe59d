"""The examples of packaging: their manifests are those of the code, are accepted, and permit what the operator does."""

from __future__ import annotations

import logging
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from kopf.testing import LocalCluster, SyncSimulation
from tests.downloads import get_helm
from tests.examples.conftest import EXAMPLES
from tests.examples.test_service_monitor import CRD as SERVICE_MONITORS
from tests.patience import PATIENCE

PACKAGING = EXAMPLES / "packaging"
REPLICAS = EXAMPLES / "replicas"
OVERLAY = PACKAGING / "kustomize" / "overlays" / "production"
HELM = PACKAGING / "helm"
RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kubectl: str, folder: pathlib.Path) -> str:
    return run(kubectl, "kustomize", folder, cwd=folder)


def render() -> str:
    """Give what Helm installs, the namespace of the release included."""
    options = ["--include-crds", "--namespace", "greeter", "--values", str(HELM / "values-production.yaml")]
    rendered = run(get_helm(), "template", "greeter", HELM / "chart", *options, cwd=HELM)
    return f"{(OVERLAY / 'namespace.yaml').read_text()}\n---\n{rendered}"


@pytest.fixture(params=["helm", "kustomize"])
def manifests(request: pytest.FixtureRequest, kubectl: str) -> str:
    return render() if request.param == "helm" else build(kubectl, OVERLAY)


@pytest.mark.parametrize("folder", [PACKAGING, REPLICAS], ids=lambda path: path.name)
def test_manifests_are_those_of_the_code(folder: pathlib.Path) -> None:
    run("make", "check", cwd=folder)


def test_the_operator_is_permitted_to_work(manifests: str) -> None:
    with SyncSimulation(
        PACKAGING / "handlers.py",
        crds=manifests,
        authorization="rbac",
        user="system:serviceaccount:greeter:greeter",
        groups=["system:serviceaccounts", "system:authenticated"],
    ) as simulation:
        simulation.apply(PACKAGING / "obj.yaml")
        simulation.expect("configmap", "hello", field="data.text", value="Hello, world!")
        assert simulation.logs.get_messages(logging.WARNING) == []


def test_production_differs_from_what_is_generated(manifests: str) -> None:
    [deployment] = [item for item in yaml.safe_load_all(manifests) if item and item["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/greeter:1.1"
    assert container["resources"] == RESOURCES
    assert deployment["metadata"]["namespace"] == "greeter"


@pytest.mark.parametrize(
    "folder",
    [OVERLAY, REPLICAS / "deploy" / "leader", REPLICAS / "deploy" / "shards", REPLICAS / "deploy" / "autoscaled"],
    ids=lambda path: path.name,
)
def test_the_cluster_accepts_them(folder: pathlib.Path, kubectl: str) -> None:
    with LocalCluster(simulate=True) as cluster:
        cluster.apply(SERVICE_MONITORS)
        command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), "apply", "--validate=strict"]
        assert " created" in run(*command, "--kustomize", folder, cwd=folder)
        [deployment] = [
            item for item in cluster.list("deployments") if item["metadata"]["name"] in ("greeter", "reports")
        ]
        cluster.wait_for(
            "deployment",
            deployment["metadata"]["name"],
            "condition=Available",
            namespace=deployment["metadata"]["namespace"],
        )


def test_the_autoscaler_decides_on_the_number_of_replicas(kubectl: str) -> None:
    by_kind = {item["kind"]: item for item in yaml.safe_load_all(build(kubectl, REPLICAS / "deploy" / "autoscaled"))}
    deployment, autoscaler = by_kind["Deployment"], by_kind["HorizontalPodAutoscaler"]
    assert "replicas" not in deployment["spec"]
    target = {key: autoscaler["spec"]["scaleTargetRef"][key] for key in ("apiVersion", "kind")}
    assert target == {key: deployment[key] for key in ("apiVersion", "kind")}
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert autoscaler["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert any(arg.startswith("--metrics=") for arg in command)
