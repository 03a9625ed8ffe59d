"""``kopf rbac`` & ``kopf manifests``: what they print and write, and what real tools make of it."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import pytest
import yaml

from kopf.testing import LocalCluster
from tests.cli.processes import ROOT
from tests.docs.conftest import get_blocks
from tests.downloads import get_helm
from tests.packaging.conftest import CRD, Kopf
from tests.patience import PATIENCE

IMAGE = ["--name", "kex", "--image", "registry.example.com:5000/kex:1.2"]
EVERYTHING = ["--with", "pdb", "--with", "network-policy", "--with", "service-monitor"]

Objects = dict[tuple[str, str], Any]


def parse(text: str) -> Objects:
    objects = [item for item in yaml.safe_load_all(text) if item]
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def list_rules(role: Any) -> list[tuple[str, str]]:
    return [(name, " ".join(rule["verbs"])) for rule in role["rules"] for name in rule["resources"]]


def test_roles(kopf_command: Kopf, handlers: pathlib.Path) -> None:
    result = kopf_command("rbac", handlers, "--crds", CRD)
    assert result.returncode == 0, result.stderr
    assert "It is configured." in result.stderr
    objects = parse(result.stdout)
    assert list_rules(objects["ClusterRole", "operator"]) == [
        ("events", "create patch"),
        ("secrets", "get"),
        ("mutatingwebhookconfigurations", "patch"),
        ("validatingwebhookconfigurations", "create"),
        ("validatingwebhookconfigurations", "list watch patch"),
        ("customresourcedefinitions", "list watch"),
        ("kopfexamples", "list watch patch"),
        ("kopfexamples/status", "patch"),
    ]
    assert objects["Role", "operator"]["metadata"]["namespace"] == "default"
    printed = json.loads(kopf_command("rbac", handlers, "--crds", CRD, "--json").stdout)
    assert printed == list(objects.values())


def test_settings_are_not_changed_without_startup_handlers(kopf_command: Kopf, handlers: pathlib.Path) -> None:
    output = kopf_command("rbac", handlers, "--crds", CRD, "--no-startup").stdout
    assert "kopfexamples" in output
    assert "webhookconfigurations" not in output


def test_roles_of_namespaces(kopf_command: Kopf, handlers: pathlib.Path) -> None:
    result = kopf_command("rbac", handlers, "--crds", CRD, "-n", "ns1", "-n", "ns2")
    namespaces = [item["metadata"].get("namespace") for item in yaml.safe_load_all(result.stdout)]
    assert namespaces == [None, "default", "ns1", "ns2"]
    result = kopf_command("rbac", handlers, "--crds", CRD, "-n", "ns-*")
    assert [item["kind"] for item in yaml.safe_load_all(result.stdout)] == ["ClusterRole", "Role"]
    assert "namespaces" in result.stdout


@pytest.mark.parametrize(
    ("code", "args", "message"),
    [
        ("", [], "There are no handlers"),
        ("import kopf\nkopf.on.event('kopfexamples')(lambda **_: None)", [], "--crds"),
        ("import kopf\nkopf.on.event('pods')(lambda **_: None)", ["-A", "-n", "ns"], "not both"),
        ("import kopf\nkopf.on.event('pods')(lambda x, **_: None)", [], "'x'"),
        ("import kopf\nkopf.on.event('pods')(lambda **_: None)", ["--observed", CRD], "not an audit"),
        (
            "import kopf\nkopf.on.event('pods')(lambda **_: None)\n@kopf.on.startup()\ndef fn(settings, **_):\n"
            "    raise kopf.PermanentError('No luck')",
            [],
            "No luck",
        ),
    ],
)
def test_mistakes(kopf_command: Kopf, tmp_path: pathlib.Path, code: str, args: list[str], message: str) -> None:
    (tmp_path / "mistaken_handlers.py").write_text(code)
    result = kopf_command("rbac", "mistaken_handlers.py", *args)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("name", "My App"),
        ("name", "-x"),
        ("name", ""),
        ("name", "a" * 64),
        ("name", "a.b"),
        ("name", "{{x}}"),
        ("into", "Foo/bar"),
        ("into", ""),
        ("image", ""),
        ("image", "with space"),
        ("image", "{{x}}"),
    ],
)
def test_names_that_no_server_accepts(
    kopf_command: Kopf,
    handlers: pathlib.Path,
    option: str,
    value: str,
) -> None:
    options = {"name": "kex", "image": "kex:1", option: value}
    result = kopf_command("manifests", handlers, "--crds", CRD, *(f"--{key}={text}" for key, text in options.items()))
    assert result.returncode == 2
    assert f"--{option}" in result.stderr
    assert not result.stdout


def test_files_in_other_encodings_differ(kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "rbac.yaml").write_bytes(b"\xff\xfe")
    result = kopf_command("manifests", handlers, "--crds", CRD, *IMAGE, "--check", ".")
    assert result.returncode == 1
    assert "Out of date:" in result.stderr
    assert "Traceback" not in result.stderr


def test_observed_requests_are_added(kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    request = {
        "namespace": "ns",
        "group": "batch",
        "resource": "jobs",
        "subresource": "",
        "verb": "create",
        "code": 201,
        "agent": "OpenAPI-Generator/30.1.0/python",
    }
    (tmp_path / "audit.json").write_text(json.dumps({"requests": [request]}))
    result = kopf_command("rbac", handlers, "--crds", CRD, "--observed", "audit.json")
    assert ("jobs", "create") in list_rules(parse(result.stdout)["ClusterRole", "operator"])


def test_the_audit_of_the_local_cluster_can_be_observed(tmp_path: pathlib.Path, kopf_command: Kopf) -> None:
    (tmp_path / "pod_handlers.py").write_text("import kopf\nkopf.on.event('pods')(lambda **_: None)")
    with LocalCluster() as cluster:
        command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "get", "configmaps"]
        subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE)
        cluster.write_audit(tmp_path / "audit.json")
    assert json.loads((tmp_path / "audit.json").read_text())["requests"]
    output = kopf_command("rbac", "pod_handlers.py", "--observed", "audit.json").stdout
    assert "pods" in output
    assert "configmaps" not in output  # it was kubectl


def test_manifests(kopf_command: Kopf, handlers: pathlib.Path) -> None:
    args = ["manifests", handlers, "--crds", CRD, *IMAGE, *EVERYTHING, "--into", "ops"]
    result = kopf_command(*args)
    assert result.returncode == 0, result.stderr
    objects = parse(result.stdout)
    assert [kind for kind, _ in objects] == [
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "ClusterRoleBinding",
        "RoleBinding",
        "Deployment",
        "Service",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
    ]
    pod = objects["Deployment", "kex"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == [
        "kopf",
        "run",
        "/src/packaged_handlers.py",
        "--all-namespaces",
        "--standalone",
        "--log-format=json",
        "--liveness=http://0.0.0.0:8080/healthz",
        "--metrics=http://0.0.0.0:8080/metrics",
    ]
    assert pod["terminationGracePeriodSeconds"] == 112
    assert objects["Service", "hooks"]["spec"]["ports"] == [{"name": "webhooks", "port": 443, "targetPort": "webhooks"}]
    assert objects["ClusterRoleBinding", "kex"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "kex", "namespace": "ops"}
    ]
    assert kopf_command(*args).stdout == result.stdout


@pytest.mark.parametrize(
    ("options", "replicas", "arguments"),
    [
        (["--leader-election"], 2, ["--leader-election=kex"]),
        (["--shards"], 3, ["--shards=kex"]),
        (["--shards", "--replicas", "5"], 5, ["--shards=kex"]),
        (["--shards", "--replicas", "1", "--peering", "default"], 1, ["--peering=default", "--shards=kex"]),
    ],
)
def test_manifests_of_replicas(
    kopf_command: Kopf, handlers: pathlib.Path, options: list[str], replicas: int, arguments: list[str]
) -> None:
    result = kopf_command("manifests", handlers, "--crds", CRD, *IMAGE, "--into", "ops", *options)
    assert result.returncode == 0, result.stderr
    objects = parse(result.stdout)
    spec = objects["Deployment", "kex"]["spec"]
    assert spec["replicas"] == replicas
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 142
    [container] = pod["containers"]
    assert {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container["env"]} == {
        "POD_NAMESPACE": "metadata.namespace",
        "POD_NAME": "metadata.name",
    }
    assert [arg for arg in container["command"] if "default" in arg or "kex" in arg] == arguments
    assert "--standalone" not in container["command"]
    assert (("PodDisruptionBudget", "kex") in objects) is (replicas > 1)
    leases = next(rule for rule in objects["Role", "kex"]["rules"] if rule["resources"] == ["leases"])
    assert leases["verbs"] == ["get", "list", "watch", "create", "patch"]
    assert objects["Role", "kex"]["metadata"]["namespace"] == "ops"


def test_replicas_are_ready_when_they_know_of_each_other(kopf_command: Kopf, tmp_path: pathlib.Path) -> None:
    (tmp_path / "pod_handlers.py").write_text("import kopf\nkopf.on.event('pods')(lambda **_: None)")
    objects = parse(kopf_command("manifests", "pod_handlers.py", *IMAGE, "--shards").stdout)
    [container] = objects["Deployment", "kex"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert "leases" not in kopf_command("rbac", "pod_handlers.py").stdout
    assert "leases" in kopf_command("rbac", "pod_handlers.py", "--leader-election").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas", "2"], "With --replicas, also use --leader-election or --shards"),
        (["--replicas", "0", "--shards"], "--replicas"),
        (["--leader-election", "--shards"], "Either --leader-election or --shards can be used, not both."),
    ],
)
def test_replicas_that_make_no_sense(
    kopf_command: Kopf, handlers: pathlib.Path, options: list[str], message: str
) -> None:
    result = kopf_command("manifests", handlers, "--crds", CRD, *IMAGE, *options)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert not result.stdout


def test_replicas_of_the_settings(kopf_command: Kopf, tmp_path: pathlib.Path) -> None:
    code = "import kopf\nkopf.on.event('pods')(lambda **_: None)\n@kopf.on.startup()\ndef fn(settings, **_):\n"
    (tmp_path / "pod_handlers.py").write_text(f"{code}    settings.coordination.mode = 'shards'")
    objects = parse(kopf_command("manifests", "pod_handlers.py", *IMAGE).stdout)
    spec = objects["Deployment", "kex"]["spec"]
    assert spec["replicas"] == 3
    assert not any("shards" in arg for arg in spec["template"]["spec"]["containers"][0]["command"])
    (tmp_path / "pod_handlers.py").write_text(f"{code}    settings.coordination.mode = 'master'")
    result = kopf_command("manifests", "pod_handlers.py", *IMAGE)
    assert result.returncode == 1
    assert "settings.coordination.mode must be" in result.stderr


def test_manifests_are_accepted(kopf_command: Kopf, handlers: pathlib.Path, kubectl: str) -> None:
    args = ["manifests", handlers, "--crds", CRD, *IMAGE, "--shards", "--with", "network-policy"]
    text = kopf_command(*args).stdout
    with LocalCluster(simulate=True) as cluster:
        command = [kubectl, "--kubeconfig", str(cluster.kubeconfig)]
        result = subprocess.run(
            [*command, "apply", "--validate=strict", "-f", "-"],
            input=text,
            text=True,
            check=False,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert result.returncode == 0, result.stderr
        result = subprocess.run(
            [*command, "rollout", "status", "deployment/kex"],
            text=True,
            check=False,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert "successfully rolled out" in result.stdout, result.stderr


def test_manifests_of_the_docs_are_accepted(kubectl: str) -> None:
    documents = get_blocks(ROOT / "docs" / "replicas.md", "yaml")
    assert [yaml.safe_load(text)["kind"] for text in documents] == ["Deployment", "Role", "HorizontalPodAutoscaler"]
    with LocalCluster() as cluster:
        result = subprocess.run(
            [kubectl, "--kubeconfig", str(cluster.kubeconfig), "apply", "--validate=strict", "-f", "-"],
            input="\n---\n".join(documents),
            text=True,
            check=False,
            capture_output=True,
            timeout=PATIENCE,
        )
    assert result.returncode == 0, result.stderr


def test_files_are_checked(kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    args = ["manifests", handlers, "--crds", CRD, *IMAGE]
    (tmp_path / "out").mkdir()
    assert kopf_command(*args, "--output", "out").returncode == 0
    assert kopf_command(*args, "--check", "out").returncode == 0
    (tmp_path / "out" / "rbac.yaml").write_text("---")
    (tmp_path / "out" / "service.yaml").unlink()
    (tmp_path / "out" / "other.yaml").write_text("it is of somebody else")
    result = kopf_command(*args, "--check", "out")
    assert result.returncode == 1
    assert "rbac.yaml, service.yaml." in result.stderr
    assert (tmp_path / "out" / "rbac.yaml").read_text() == "---"


@pytest.mark.parametrize(
    ("format", "path"),
    [
        ("plain", "networkpolicy.yaml"),
        ("kustomize", "networkpolicy.yaml"),
        ("helm", "templates/networkpolicy.yaml"),
    ],
)
def test_files_of_former_features_are_named(
    kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path, format: str, path: str
) -> None:
    """They would be applied with the others; but they can be of somebody else, so they stay."""
    args = ["manifests", handlers, "--crds", CRD, *IMAGE, "--format", format]
    assert "Not needed" not in kopf_command(*args, "--with", "network-policy", "--output", "out").stderr
    file = tmp_path / "out" / path
    text = file.read_text()
    file.with_name("other.yaml").write_text("it is of somebody else")
    result = kopf_command(*args, "--output", "out")
    assert result.returncode == 0
    [line] = [line for line in result.stderr.splitlines() if "Not needed" in line]
    assert line == f"Not needed: {pathlib.Path('out', path)}. Delete the file; or, if you wrote it, rename it."
    assert file.read_text() == text
    result = kopf_command(*args, "--check", "out")
    assert (result.returncode, f"Out of date: {path}." in result.stderr) == (1, True)
    file.unlink()
    assert kopf_command(*args, "--check", "out").returncode == 0
    assert "Not needed" not in kopf_command(*args, "--output", "out").stderr
    assert not file.exists()


def test_files_of_one_name_are_one_file_in_the_image(
    kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / handlers.name
    other.write_text(handlers.read_text())
    result = kopf_command("manifests", handlers, other, "--crds", CRD, *IMAGE)
    assert result.returncode == 2
    assert f"another file are both '/src/{handlers.name}' in the image: rename one" in " ".join(result.stderr.split())


def test_kustomize(kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path, kubectl: str) -> None:
    args = ["manifests", handlers, "--crds", CRD, *IMAGE, *EVERYTHING]
    assert kopf_command(*args, "--format", "kustomize").returncode == 2  # there are many files
    kopf_command(*args, "--format", "kustomize", "--output", "base")
    result = subprocess.run(
        [kubectl, "kustomize", str(tmp_path / "base")], text=True, check=False, capture_output=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    assert parse(result.stdout) == parse(kopf_command(*args).stdout)


def test_helm(kopf_command: Kopf, handlers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    helm = get_helm()
    args = ["manifests", handlers, "--crds", CRD, *IMAGE, *EVERYTHING, "-n", "ops"]
    result = kopf_command(*args, "--format", "helm", "--output", "chart")
    assert result.returncode == 0, result.stderr

    def render(*args: str) -> Objects:
        command = [helm, "template", "release", "chart", "--include-crds", "--namespace", "ops", *args]
        result = subprocess.run(command, text=True, check=False, cwd=tmp_path, capture_output=True, timeout=PATIENCE)
        assert result.returncode == 0, result.stderr
        return parse(result.stdout)

    def get_pod(objects: Objects) -> Any:
        return objects["Deployment", "kex"]["spec"]["template"]["spec"]

    rendered, plain = render(), parse(kopf_command(*args).stdout)
    pod = get_pod(rendered)
    names = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets")
    assert [pod.pop(name) for name in names] == [{}, [], {}, []]
    assert pod["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    assert rendered == plain
    pod = get_pod(
        render(
            "--set",
            "image=other:2",
            "--set",
            "nodeSelector.disk=ssd",
            "--set",
            "resources.limits.cpu=1",
            "--set",
            "env[0].name=X",
            "--set",
            "env[0].value=y",
        )
    )
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["containers"][0]["image"] == "other:2"
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "256Mi", "cpu": 1}
    assert [item["name"] for item in pod["containers"][0]["env"]] == ["POD_NAMESPACE", "X"]
    lint = subprocess.run([helm, "lint", "chart"], text=True, check=False, cwd=tmp_path, capture_output=True)
    assert lint.returncode == 0, lint.stdout


@pytest.mark.parametrize("page", ["how-to/webhooks.md", "webhook-servers.md"])
def test_webhooks_of_the_docs_have_their_services(kopf_command: Kopf, tmp_path: pathlib.Path, page: str) -> None:
    blocks = get_blocks(ROOT / "docs" / page, "python")
    (tmp_path / "documented.py").write_text(next(block for block in blocks if "WebhookServiceServer(" in block))
    objects = parse(kopf_command("manifests", "documented.py", "--crds", CRD, *IMAGE).stdout)
    assert ("Service", "my-operator") in objects
    assert ("secrets", "create") in list_rules(objects["Role", "kex"])
