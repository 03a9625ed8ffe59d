"""The real ``kubectl`` against the local cluster. It takes some time per call, so the calls go in stories."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cluster.conftest import make_definition

TIMEOUT = 30  # seconds per call; only for what hangs


class Kubectl:
    """Runs the commands; a command must succeed unless it is told otherwise."""

    def __init__(self, path: str, cluster: LocalCluster, directory: pathlib.Path) -> None:
        super().__init__()
        self._path = path
        self._directory = directory
        self._env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(directory),
                     "KUBE_EDITOR": "sed -i s/busybox/nginx/", "GOGC": os.environ["GOGC"]}

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen([self._path, *args], env=self._env, cwd=self._directory, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self._path, *args], env=self._env, cwd=self._directory, text=True,
                              capture_output=True, timeout=TIMEOUT, check=False)

    def __call__(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 0, done
        assert not done.stderr, done
        return done.stdout.strip()

    def fail(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 1, done
        return done.stderr.strip()

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json"))

    def write(self, name: str, *manifests: Any) -> str:
        path = self._directory / name
        path.write_text(yaml.safe_dump_all(manifests))
        return str(path)


@pytest.fixture
def k(kubectl: str, tmp_path: pathlib.Path) -> Iterator[Kubectl]:
    with LocalCluster(bare=True) as cluster:
        yield Kubectl(kubectl, cluster, tmp_path)


CRONTAB = {
    "apiVersion": "example.com/v1", "kind": "CronTab", "metadata": {"name": "one", "labels": {"app": "x"}},
    "spec": {"cron": "* * * * *", "replicas": 2},
}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"},
    "spec": {"containers": [{"name": "c", "image": "busybox", "env": [{"name": "A", "value": "1"}]}]},
}


@pytest.fixture
def crontabs(k: Kubectl) -> None:
    definition = make_definition("crontabs", "CronTab", spec={
        "type": "object", "required": ["cron"],
        "properties": {
            "cron": {"type": "string", "description": "When to do it"},
            "image": {"type": "string", "default": "busybox"},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
        },
    }, additionalPrinterColumns=[
        {"name": "Cron", "type": "string", "jsonPath": ".spec.cron"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
    definition["spec"]["names"]["shortNames"] = ["ct"]
    assert k("apply", "-f", k.write("crd.yaml", definition)).endswith("crontabs.example.com created")
    k("wait", "--for=condition=Established", "crd/crontabs.example.com", f"--timeout={TIMEOUT}s")
    assert k("create", "-f", k.write("one.yaml", CRONTAB)) == "crontab.example.com/one created"


@pytest.mark.usefixtures("crontabs")
def test_getting(k: Kubectl) -> None:
    header, row = k("get", "ct").splitlines()
    assert header.split() == ["NAME", "CRON", "AGE"]
    assert row.split()[:-1] == ["one", *"*****"]
    assert k("get", "ct", "-o", "wide").splitlines()[0].split() == ["NAME", "CRON", "REPLICAS", "AGE"]
    assert k("get", "crontabs.example.com", "-o", "name") == "crontab.example.com/one"
    assert yaml.safe_load(k("get", "ct", "one", "-o", "yaml"))["spec"]["image"] == "busybox"
    assert k("get", "ct", "one", "-o", "jsonpath={.spec.cron}") == "* * * * *"
    assert k("get", "ct", "-A", "-l", "app=x", "--show-labels", "--no-headers").split()[-1] == "app=x"
    assert k.json("get", "ct", "-l", "app=y")["items"] == []
    assert 'crontabs.example.com "two" not found' in k.fail("get", "ct", "two")
    assert "the server doesn't have a resource type \"nosuch\"" in k.fail("get", "nosuch")
    assert "field label not supported: spec.x" in k.fail("get", "pods", "--field-selector=spec.x=1")
    described = k("describe", "ct", "one")
    assert "Cron:      * * * * *" in described
    assert described.split()[-2:] == ["Events:", "<none>"]
    assert k("explain", "ct.spec.cron").split()[-4:] == ["When", "to", "do", "it"]
    resources = k("api-resources", "--api-group=example.com", "--no-headers").split()
    assert resources == ["crontabs", "ct", "example.com/v1", "true", "CronTab"]
    assert "Server Version: v1.36" in k.run("version").stdout


@pytest.mark.usefixtures("crontabs")
def test_writing(k: Kubectl) -> None:
    file = k.write("one.yaml", CRONTAB)
    assert "AlreadyExists" in k.fail("create", "-f", file)
    assert k.run("apply", "-f", file).stdout == "crontab.example.com/one configured\n"
    assert k("apply", "-f", file) == "crontab.example.com/one unchanged"
    file = k.write("one.yaml", {**CRONTAB, "spec": {"cron": "0 * * * *"}})
    assert k("apply", "-f", file) == "crontab.example.com/one configured"
    assert k.json("get", "ct", "one")["spec"] == {"cron": "0 * * * *", "image": "busybox"}

    assert k("edit", "ct", "one") == "crontab.example.com/one edited"
    assert k.json("get", "ct", "one")["spec"]["image"] == "nginx"

    k("patch", "ct", "one", "--type=merge", "-p", '{"spec":{"replicas":3}}')
    k("patch", "ct", "one", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":4}]')
    assert "the server rejected our request" in k.fail(
        "patch", "ct", "one", "--type=json", "-p", '[{"op":"test","path":"/spec/replicas","value":3}]')
    assert "strategic-merge-patch+json is not supported" in k.fail("patch", "ct", "one", "-p", '{"spec":{}}')
    assert k("label", "ct", "one", "color=red") == "crontab.example.com/one labeled"
    assert k("label", "ct", "one", "app-") == "crontab.example.com/one unlabeled"
    assert k("annotate", "ct", "one", "note=text") == "crontab.example.com/one annotated"
    k("patch", "ct", "one", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Done"}}')
    k("wait", "ct", "one", "--for=jsonpath={.status.phase}=Done", f"--timeout={TIMEOUT}s")
    obj = k.json("get", "ct", "one")
    assert obj["spec"]["replicas"] == 4
    assert obj["status"] == {"phase": "Done"}
    assert obj["metadata"]["labels"] == {"color": "red"}
    assert obj["metadata"]["annotations"]["note"] == "text"

    assert k("replace", "-f", file) == "crontab.example.com/one replaced"
    assert k.json("get", "ct", "one")["status"] == {"phase": "Done"}

    broken = k.write("bad.yaml", {**CRONTAB, "metadata": {"name": "bad"}, "spec": {"cron": "x", "replicas": 15}})
    assert k.fail("apply", "-f", broken) == (
        'The CronTab "bad" is invalid: spec.replicas: Invalid value: 15: '
        "spec.replicas in body should be less than or equal to 10")
    alien = k.write("bad.yaml", {**CRONTAB, "metadata": {"name": "bad"}, "spec": {"cron": "x", "alien": 15}})
    assert 'strict decoding error: unknown field "spec.alien"' in k.fail("apply", "-f", alien)
    assert k("apply", "--server-side", "-f", file) == "crontab.example.com/one serverside-applied"


@pytest.mark.usefixtures("crontabs")
def test_deleting(k: Kubectl) -> None:
    k("patch", "ct", "one", "--type=merge", "-p", '{"metadata":{"finalizers":["a/b"]}}')
    deletion = k.start("delete", "ct", "one")
    try:
        k("wait", "ct", "one", "--for=jsonpath={.metadata.deletionGracePeriodSeconds}=0", f"--timeout={TIMEOUT}s")
        assert deletion.poll() is None
        k("patch", "ct", "one", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert deletion.communicate(timeout=TIMEOUT) == ('crontab.example.com "one" deleted\n', "")
    finally:
        deletion.kill()
        deletion.communicate()
    assert "NotFound" in k.fail("delete", "ct", "one")
    k("apply", "-f", k.write("one.yaml", CRONTAB))
    k("delete", "ct", "--all")
    k("delete", "crd", "crontabs.example.com")
    assert "NotFound" in k.fail("get", "--raw", "/apis/example.com/v1/crontabs")


@pytest.mark.usefixtures("crontabs")
def test_watching(k: Kubectl) -> None:
    process = k.start("get", "ct", "-w")
    killer = threading.Timer(TIMEOUT, process.kill)  # only for what hangs: then the pipe ends
    killer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["NAME", "CRON", "AGE"]
        assert process.stdout.readline().split()[0] == "one"
        k("patch", "ct", "one", "--type=merge", "-p", '{"spec":{"cron":"new"}}')
        assert process.stdout.readline().split()[:2] == ["one", "new"]
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


def test_builtin_kinds(k: Kubectl) -> None:
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d1"},
        "spec": {"selector": {"matchLabels": {"app": "d1"}},
                 "template": {"metadata": {"labels": {"app": "d1"}},
                              "spec": {"containers": [{"name": "c", "image": "busybox"}]}}},
    }
    file = k.write("all.yaml", POD, deployment)
    assert k("apply", "-f", file) == "pod/p1 created\ndeployment.apps/d1 created"
    assert k("apply", "-f", file) == "pod/p1 unchanged\ndeployment.apps/d1 unchanged"
    assert k("get", "pods", "--no-headers").split()[:3] == ["p1", "0/1", "Pending"]
    assert k("get", "all", "-o", "name").split() == ["pod/p1", "deployment.apps/d1"]
    k("patch", "deploy", "d1", "-p", '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}')
    k("set", "image", "deploy/d1", "c=other")
    k("set", "env", "pod/p1", "--list")
    assert k("get", "deploy", "d1", "-o", "jsonpath={.spec.template.spec.containers[*].image}") == "other"
    assert "Image:      busybox" in k("describe", "pod", "p1")
    assert "Replicas:               1 desired" in k("describe", "deploy", "d1")
    assert k("get", "pods", "--field-selector=status.phase=Pending", "-o", "name") == "pod/p1"
    assert k("run", "p2", "--image=busybox") == "pod/p2 created"
    assert "pods/log is not supported by the local cluster" in k.fail("logs", "p2")
    k("delete", "-f", file)
    k("delete", "pods", "--all")
    assert k.json("get", "all")["items"] == []


def test_creating_by_commands(k: Kubectl) -> None:
    """These are sent in protobuf."""
    assert k("create", "namespace", "foo") == "namespace/foo created"
    k("create", "configmap", "cm", "--from-literal=a=b")
    k("create", "secret", "generic", "s", "--from-literal=a=b")
    k("create", "serviceaccount", "sa")
    k("create", "deployment", "d", "--image=x", "--replicas=0", "--port=80", "-n", "foo")
    k("create", "service", "clusterip", "svc1", "--tcp=80:8080")
    k("create", "service", "nodeport", "svc2", "--tcp=80:http")
    k("create", "job", "j", "--image=x", "--", "echo", "1")
    k("create", "cronjob", "cj", "--image=x", "--schedule=* * * * *", "--", "echo", "2")
    k("create", "role", "r", "--verb=get,list", "--resource=pods")
    k("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:sa")
    k("create", "clusterrole", "cr", "--verb=get", "--non-resource-url=/x")
    k("create", "clusterrolebinding", "crb", "--clusterrole=cr", "--user=me")
    k("create", "quota", "q", "--hard=pods=2,cpu=1")
    k("create", "poddisruptionbudget", "pdb", "--min-available=50%", "--selector=a=b")
    k("create", "priorityclass", "pc", "--value=-100")
    k("create", "ingress", "i", "--rule=foo.com/bar=svc1:80")
    assert k.json("get", "configmap", "cm")["data"] == {"a": "b"}
    assert k.json("get", "secret", "s")["data"] == {"a": "Yg=="}
    spec = k.json("get", "deploy", "d", "-n", "foo")["spec"]
    assert spec["replicas"] == 0
    [container] = spec["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("x", "x")
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    ports = [item["spec"]["ports"][0]["targetPort"] for item in k.json("get", "services")["items"]]
    assert ports == [8080, "http"]
    job = k.json("get", "cronjob", "cj")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert job["containers"][0]["command"] == ["echo", "2"]
    assert k.json("get", "role", "r")["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]
    assert k.json("get", "rolebinding", "rb")["subjects"] == [
        {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}]
    assert k.json("get", "quota", "q")["spec"] == {"hard": {"pods": "2", "cpu": "1"}}
    assert k.json("get", "pdb", "pdb")["spec"]["minAvailable"] == "50%"
    assert k.json("get", "pc", "pc")["value"] == -100
    path = k.json("get", "ingress", "i")["spec"]["rules"][0]["http"]["paths"][0]
    backend = {"service": {"name": "svc1", "port": {"number": 80}}}
    assert path == {"path": "/bar", "pathType": "Exact", "backend": backend}
    assert k("delete", "namespace", "foo") == 'namespace "foo" deleted'
    assert "NotFound" in k.fail("get", "namespace", "foo")
