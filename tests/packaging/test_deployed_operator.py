"""An operator with the permissions that were found out for it: they are enough, and none of them is superfluous."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import kopf
from kopf.testing import LocalCluster, Simulation
from tests.cli.processes import Process
from tests.examples.conftest import wait_until, write_kubeconfig
from tests.packaging.conftest import Kopf
from tests.patience import PATIENCE
from tests.ports import find_free_port

HANDLERS = '''
from typing import Any

import kopf

kopf.needs("configmaps", verbs=["get", "create", "patch"])


class WebApp(kopf.CustomResource[dict[str, Any], dict[str, Any]], group="example.com", version="v1"):
    """What is to be there."""


@kopf.on.create(WebApp)
async def create_fn(body: Any, **_: Any) -> str:
    kopf.info(body, reason="Noted", message="It is noted.")
    kopf.info(body, reason="Noted", message="It is noted.")
    await kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "log"}, "data": {"x": "y"}})
    return "done"


@kopf.reconcile(WebApp, owns=["services"], uses=kopf.ref("secrets", lambda spec, **_: spec.get("secret")))
async def reconcile_fn(spec: Any, **_: Any) -> Any:
    if port := spec.get("port"):
        yield {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": port}]}}
'''

OBJ = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "app"}, "spec": {"port": 80}}

Role = dict[str, Any]
Permission = tuple[str, str]


def list_permissions(rules: list[Any]) -> list[Permission]:
    return [(verb, name) for rule in rules for name in rule["resources"] for verb in rule["verbs"]]


IMPATIENT = """

@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.coordination.lease_duration, settings.coordination.renew_deadline = 3, 2
    settings.coordination.retry_period = 0.3
"""


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "webapp_handlers.py"
    path.write_text(HANDLERS)
    return path


def test_manifests_are_enough(
    path: pathlib.Path,
    tmp_path: pathlib.Path,
    kopf_command: Kopf,
    kubectl: str,
) -> None:
    text = kopf_command("manifests", path, "--name", "web", "--image", "web:1", "--directory", str(tmp_path)).stdout
    objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
    [container] = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    program, *args = [arg for arg in container["command"] if not arg.startswith("--liveness=")]
    assert program == "kopf"
    with LocalCluster(authorization="rbac-with-owners") as cluster:

        def run(*args: str, input: str | None = None) -> str:
            command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), *args]
            return subprocess.run(
                command, input=input, text=True, check=True, capture_output=True, timeout=PATIENCE
            ).stdout

        def get(*args: str) -> Any:
            return json.loads(run("get", *args, "--ignore-not-found", "-ojson") or "null")

        run("apply", "-f", "-", input=text)
        kubeconfig = write_kubeconfig(cluster, "default", "web", tmp_path / "kubeconfig.yaml")
        with Process(*args, cwd=tmp_path, log=tmp_path / "log", env={"KUBECONFIG": str(kubeconfig)}) as operator:
            operator.wait_for("ready:")
            run("apply", "-f", "-", input=json.dumps(OBJ))
            wait_until(lambda: (get("webapps", "app").get("status") or {}).get("create_fn"))
            wait_until(lambda: get("services", "app"))
            wait_until(lambda: [item for item in get("events")["items"] if item.get("count", 1) > 1])
            run("patch", "webapps", "app", "--type=merge", "-p", '{"spec": {"port": null}}')
            wait_until(lambda: not get("services", "app"))
            assert operator.stop() == 0
        requests = [record for record in cluster.audit if record.user.endswith(":web")]
        refused = [record for record in requests if record.code in (401, 403)]
    assert not refused
    assert len(requests) > 10
    assert "not permitted" not in operator.output
    assert {*list_permissions(objects["ClusterRole"]["rules"])} == {*NEEDED}


def ask_readiness(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as e:
        return e.code
    except urllib.error.URLError:
        return 0


def test_manifests_of_replicas_are_enough(
    path: pathlib.Path, tmp_path: pathlib.Path, kopf_command: Kopf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas share the slots with the permissions of the manifests, become ready, and are seen by commands."""
    path.write_text(HANDLERS + IMPATIENT)
    options = ["--name", "web", "--image", "web:1", "--directory", str(tmp_path), "--shards"]
    objects = [*yaml.safe_load_all(kopf_command("manifests", path, *options).stdout)]
    [deployment] = [item for item in objects if item["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    _, *args = [arg for arg in container["command"] if not arg.startswith("--liveness=")]
    with LocalCluster(authorization="rbac-with-owners") as cluster, contextlib.ExitStack() as stack:
        for item in objects:
            cluster.apply(item)
        kubeconfig = write_kubeconfig(cluster, "default", "web", tmp_path / "kubeconfig.yaml")
        ports = [find_free_port(), find_free_port()]
        operators = []
        for name, port in zip(("web-0", "web-1"), ports, strict=True):
            env = {"KUBECONFIG": str(kubeconfig), "POD_NAME": name, "POD_NAMESPACE": "default"}
            liveness = f"--liveness=http://127.0.0.1:{port}/healthz"
            operator = Process(*args, liveness, cwd=tmp_path, log=tmp_path / f"{name}.log", env=env)
            operators.append(stack.enter_context(operator))
        for operator in operators:
            operator.wait_for("Holding 128 of 256 slots")
        for port in ports:
            wait_until(lambda port=port: ask_readiness(port) == 200)  # type: ignore[misc]
        cluster.apply(OBJ)
        operators[0].wait_for("ready:")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

        def is_shared() -> bool:
            [group] = json.loads(kopf_command("shards", "web", "--json").stdout)
            shares = {item["name"]: item["share"] for item in group["replicas"]}
            return (group["mode"], group["unowned"], shares) == ("shards", "none", {"web-0": 0.5, "web-1": 0.5})

        wait_until(is_shared)  # the Leases are short: on a busy machine, they can be lost for a moment
        wait_until(lambda: "of the object belongs to web-" in kopf_command("explain", "webapps", "app").stdout)
        for operator in operators:
            assert operator.stop() == 0
        requests = [record for record in cluster.audit if record.user.endswith(":web")]
    assert not [record for record in requests if record.code in (401, 403)]
    used = {record.verb for record in requests if record.resource == "leases"}
    assert used >= {"list", "watch", "create", "patch"}
    assert all("not permitted" not in operator.output for operator in operators)


def find_rules() -> list[Any]:
    """Find out the rules in this process, as the command does."""
    from kopf._packaging.manifests import merge_rules
    from kopf._packaging.rules import Situation, find_resources, infer_rules
    from kopf._values.resources import Resource

    core = [
        Resource("", "v1", name, kind, namespaced=True)
        for name, kind in (("configmaps", "ConfigMap"), ("services", "Service"), ("secrets", "Secret"))
    ]
    resources, _ = find_resources(registry, core)
    return merge_rules(infer_rules(registry, kopf.OperatorSettings(), resources, Situation()))


def load_registry() -> Iterator[kopf.OperatorRegistry]:
    loaded, previous = kopf.OperatorRegistry(), kopf.get_default_registry()
    kopf.set_default_registry(loaded)
    try:
        exec(compile(HANDLERS, "webapp_handlers.py", "exec"), {"__name__": "webapp_handlers"})
        yield loaded
    finally:
        kopf.set_default_registry(previous)


[registry] = load_registry()
RULES = find_rules()
NEEDED = list_permissions(RULES)


def without(permission: Permission | None) -> list[Any]:
    """The rules, one for each verb of each resource, without one of them."""
    return [
        {**rule, "resources": [name], "verbs": [verb]}
        for rule in RULES
        for name in rule["resources"]
        for verb in rule["verbs"]
        if (verb, name) != permission
    ]


def make_role(permission: Permission | None) -> list[Any]:
    metadata, group = {"name": "web"}, "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": without(permission)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "web"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "web"}],
        },
    ]


def make_definitions() -> list[Any]:
    from kopf._models.crds import list_models, make_definitions

    return [*make_definitions(list_models(registry))]


async def live(simulation: Simulation) -> set[Permission]:
    """Live through all that the operator does; give what was refused."""
    await simulation.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    await simulation.apply(OBJ)
    await simulation.advance(seconds=30)
    await simulation.patch("webapps", "app", {"spec": {"port": 81, "secret": "s"}})
    await simulation.advance(seconds=30)
    await simulation.patch("webapps", "app", {"spec": {"port": None}})
    await simulation.advance(seconds=30)
    return {(verb, name) for verb, name, code in simulation.cluster.counters if code == 403}


@pytest.mark.parametrize("permission", [None, *NEEDED], ids=lambda item: "-".join(item or ["nothing"]))
def test_each_permission_is_needed(permission: Permission | None) -> None:
    async def test(simulation: Simulation) -> set[Permission]:
        return await live(simulation)

    options: Any = {
        "registry": registry,
        "user": "web",
        "groups": [],
        "authorization": "rbac-with-owners",
        "crds": [*make_definitions(), *make_role(permission)],
    }
    refused = kopf.testing.simulate(test, **options)
    applied = {("patch", "services"), ("patch", "configmaps")}  # what is applied is patched, and is created by that
    if permission == ("update", "webapps/finalizers"):  # asked for, as children block the deletion of owners
        assert refused == applied
    elif permission == ("create", "services") or permission == ("create", "configmaps"):
        assert refused == {("patch", permission[1])}
    else:
        assert refused == ({permission} if permission else set())
