"""``kopf plan``: what an operator would write; nothing is written."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cli.api import request
from tests.cli.conftest import Starter
from tests.forging import Forge
from tests.patience import PATIENCE

PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"
CONFIGS = "/api/v1/namespaces/default/configmaps"
HANDLERS = """
    import kopf
    import sys

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    async def ensure_fn(spec, patch, name, **_):
        print("ensure_fn is called", file=sys.stderr)
        await kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": str(spec["size"])}})
        patch.status["size"] = spec["size"]
        kopf.conditions(patch)["Ready"] = kopf.Condition(True, reason="Up")

    @kopf.on.delete("kopfexamples")
    def delete_fn(**_): ...

    @kopf.on.resume("kopfexamples")
    def resume_fn(body, **_):
        kopf.info(body, reason="Resumed", message="It goes on.")

    @kopf.timer("kopfexamples", interval=0.01)
    def timer_fn(memo, patch, **_):
        memo.count = memo.get("count", 0) + 1
        patch.status["ticks"] = memo.count

    @kopf.daemon("kopfexamples")
    async def daemon_fn(stopped, **_):
        await stopped.wait()
"""

Planning = subprocess.CompletedProcess[str]
Plan = Callable[..., Planning]


def list_everything(cluster: LocalCluster) -> list[Any]:
    core = "/api/v1/namespaces/default"
    return [request(cluster, "GET", path)["items"] for path in (PATH, CONFIGS, f"{core}/secrets", f"{core}/events")]


@pytest.fixture
def handlers(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "handlers.py"
    path.write_text(textwrap.dedent(HANDLERS))
    return path


@pytest.fixture
def plan(cluster: LocalCluster, tmp_path: pathlib.Path, forge: Forge) -> Plan:
    """Run the command; make sure that nothing is written."""

    def plan(*args: str) -> Planning:
        before = list_everything(cluster)
        result = forge.run("plan", *args, cwd=tmp_path, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)})
        assert list_everything(cluster) == before
        assert result.returncode == 2 or "Traceback" not in result.stderr
        return result

    return plan


def put(cluster: LocalCluster, name: str = "obj", **spec: Any) -> None:
    cluster.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": spec})


def operate(start: Starter, cluster: LocalCluster, handlers: pathlib.Path) -> None:
    """Let the operator handle everything, and stop it."""
    with start("run", str(handlers), kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("is processed")
        assert process.stop() == 0


def test_handlers_are_not_called_by_default(cluster: LocalCluster, plan: Plan, handlers: pathlib.Path) -> None:
    put(cluster, size=1)
    for args in [[], ["--no-call"]]:
        result = plan("handlers.py", *args)
        assert result.returncode == 1, result.stderr
        assert result.stdout == textwrap.dedent("""\
            ~ kopfexamples.kopf.dev default/obj
                @@ -4,4 +4,6 @@
                   name: obj
                   namespace: default
                +  finalizers:
                +  - kopf.zalando.org/KopfFinalizerMarker
                 spec:
                   size: 1
                ! Handler 'ensure_fn' would be called: create
            0 to create, 1 to change, 0 to delete; handler calls with unknown writes: 1.
            Not shown: calls at each start of the operator (3); see --json.
        """)
        assert result.stderr == ""


def test_called_handlers(cluster: LocalCluster, plan: Plan, handlers: pathlib.Path) -> None:
    put(cluster, size=1)
    result = plan("handlers.py", "--call")
    assert result.returncode == 1, result.stderr
    assert "WARNING: Kopf calls the handlers now." in result.stderr
    assert "ensure_fn is called" in result.stderr
    for text in ["+  finalizers:", "+status:", "+  size: 1", "+  ticks: 1", "+  - type: Ready"]:
        assert f"    {text}\n" in result.stdout
    assert "+ configmaps default/obj\n" in result.stdout
    assert "    +  size: '1'\n" in result.stdout
    assert "* event for KopfExample obj: Normal Resumed: It goes on." in result.stdout
    assert "1 to create, 1 to change, 0 to delete; handler calls with unknown writes: 0" in result.stdout
    assert "would be called" not in result.stdout


def test_texts_are_quoted_as_kubectl_reads_them(cluster: LocalCluster, plan: Plan, handlers: pathlib.Path) -> None:
    put(cluster, size="1e3")
    result = plan("handlers.py", "--call")
    assert result.stdout.count("    +  size: '1e3'\n") == 2  # of the object and of its child


def test_settled_operators_have_nothing_to_do(
    cluster: LocalCluster,
    plan: Plan,
    handlers: pathlib.Path,
    start: Starter,
) -> None:
    """After an edit of the code, there are exactly the intended writes."""
    handlers.write_text(handlers.read_text().partition("@kopf.timer")[0])
    put(cluster, size=1)
    operate(start, cluster, handlers)
    for args in [[], ["--no-call"], ["--call"]]:
        result = plan("handlers.py", *args)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "Nothing to do.\n" in result.stdout

    text = handlers.read_text()
    handlers.write_text(
        text.replace("@kopf.on.update", '@kopf.on.resume("kopfexamples")\n@kopf.on.update').replace(
            'str(spec["size"])', '"edited"'
        )
    )
    result = plan("handlers.py", "--call")
    assert result.returncode == 1
    assert [line for line in result.stdout.splitlines() if line.startswith(("    -", "    +"))] == [
        "    -  size: '1'",
        "    +  size: edited",
    ]
    handlers.write_text(text)

    put(cluster, size=2)
    result = plan("handlers.py")
    assert result.returncode == 1
    assert "! Handler 'ensure_fn' would be called: update\n" in result.stdout
    assert "0 to create, 0 to change, 0 to delete; handler calls with unknown writes: 1" in result.stdout
    request(cluster, "DELETE", f"{PATH}/obj")
    result = plan("handlers.py")
    assert result.returncode == 1
    assert "! Handler 'delete_fn' would be called: delete\n" in result.stdout
    assert "    -  - kopf.zalando.org/KopfFinalizerMarker\n" in result.stdout


def test_it_is_for_programs_too(cluster: LocalCluster, plan: Plan, handlers: pathlib.Path) -> None:
    put(cluster, size=1)
    result = plan("handlers.py", "--call", "--json")
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert report["pending"] is True
    by_names = {item["resource"]: item for item in report["objects"]}
    place = {"namespace": "default", "name": "obj"}
    assert by_names.keys() == {"kopfexamples.kopf.dev", "configmaps"}
    assert by_names["configmaps"].items() >= {"action": "create", "before": None, **place}.items()
    assert by_names["configmaps"]["after"]["data"] == {"size": "1"}
    assert by_names["kopfexamples.kopf.dev"]["action"] == "change"
    assert "status" not in by_names["kopfexamples.kopf.dev"]["before"]
    assert by_names["kopfexamples.kopf.dev"]["after"]["status"]["size"] == 1
    assert {(call["handler"], call["reason"], call["called"]) for call in report["calls"]} == {
        ("Handler 'ensure_fn'", "create", True),
        ("Handler 'resume_fn'", "create", True),
        ("Timer 'timer_fn'", "timer", True),
        ("Daemon 'daemon_fn'", "daemon", False),
    }
    assert report["events"] == [
        {"object": "KopfExample obj", "type": "Normal", "reason": "Resumed", "message": "It goes on."},
    ]
    assert report["errors"] == []


def test_replicas_are_planned_as_one(cluster: LocalCluster, plan: Plan, handlers: pathlib.Path) -> None:
    """Otherwise, it would wait for its turn, as it cannot write any Leases."""
    configuring = '@kopf.on.startup()\ndef configure(settings, **_):\n    settings.coordination.mode = "shards"\n'
    handlers.write_text(handlers.read_text() + configuring)
    cluster.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "x"}, "spec": {"size": 1}})
    result = plan("handlers.py", "--call")
    assert result.returncode == 1
    assert "kopfexamples.kopf.dev default/x" in result.stdout
    assert "ensure_fn is called" in result.stderr


def test_namespaces(cluster: LocalCluster, plan: Plan, handlers: pathlib.Path) -> None:
    put(cluster, size=1)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    assert plan("handlers.py", "-n", "other").returncode == 0
    assert plan("handlers.py", "-n", "default", "-n", "o*").returncode == 1
    assert plan("handlers.py", "-A").returncode == 1


SECRETS = """
    import kopf

    @kopf.on.create("kopfexamples")
    async def fn(**_):
        await kopf.apply({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "a-secret", "c": "c-secret"}})
"""


def test_nothing_of_secrets_is_shown(cluster: LocalCluster, plan: Plan, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text(textwrap.dedent(SECRETS))
    put(cluster)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "obj", "namespace": "default"},
            "data": {"a": "YS1zZWNyZXQ=", "b": "Yi1zZWNyZXQ="},
        }
    )
    for args in [[], ["--json"]]:
        result = plan("handlers.py", "--call", *args)
        assert result.returncode == 1, result.stderr
        assert "(hidden, after)" in result.stdout
        assert not any(text in result.stdout for text in ["-secret", "YS1z", "Yi1z", "Yy1z"])


FAILING = """
    import kopf

    @kopf.on.create("kopfexamples")
    async def fn(spec, patch, **_):
        if "error" in spec:
            raise kopf.PermanentError(spec["error"])
        patch.metadata.labels["x"] = "not proper!"
"""


def test_failures(cluster: LocalCluster, plan: Plan, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text(textwrap.dedent(FAILING))
    put(cluster, "one", error="It is \x1b[31mbad.")
    put(cluster, "two")
    result = plan("handlers.py", "--call")
    assert result.returncode == 2
    assert "! Handler 'fn': PermanentError: It is \\x1b[31mbad.\n" in result.stdout
    assert "! APIUnprocessableError: " in result.stdout


@pytest.mark.parametrize(
    ("content", "args", "text"),
    [
        (HANDLERS, ["-n", "ns", "-A"], "Either --all-namespaces or --namespace can be used"),
        ("", [], "Nothing to plan: there are no handlers."),
        ("import kopf\nkopf.on.create('kopfexamples', retires=1)", [], "Did you mean 'retries'?"),
        ("import kopf\nkopf.on.create('kopfexamples')(lambda spce: None)", [], "'spce'"),
        ("import kopf\n@kopf.on.startup()\ndef fn(**_): raise Exception('boom')", [], "fn"),
    ],
)
def test_what_cannot_be_planned(
    cluster: LocalCluster,
    plan: Plan,
    tmp_path: pathlib.Path,
    content: str,
    args: list[str],
    text: str,
) -> None:
    (tmp_path / "handlers.py").write_text(textwrap.dedent(content))
    result = plan("handlers.py", *args)
    assert result.returncode == 2
    assert text in result.stderr
    assert result.stdout == ""


RECONCILERS = """
    import kopf

    @kopf.reconcile("kopfexamples", owns=["configmaps"])
    async def fn(spec, **_):
        for name in spec["names"]:
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}
"""


def test_reconcilers_are_called_by_default(
    cluster: LocalCluster,
    plan: Plan,
    tmp_path: pathlib.Path,
    start: Starter,
) -> None:
    handlers = tmp_path / "handlers.py"
    handlers.write_text(textwrap.dedent(RECONCILERS))
    put(cluster, names=["one", "two"])
    result = plan("handlers.py")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "+ configmaps default/one\n" in result.stdout
    assert "+ configmaps default/two\n" in result.stdout
    assert "2 to create, 0 to change, 0 to delete; handler calls with unknown writes: 0" in result.stdout
    assert "+ configmaps" not in plan("handlers.py", "--no-call").stdout
    with start("run", str(handlers), kubeconfig=cluster.kubeconfig) as process:
        wait_for(lambda: {"one", "two"} <= set(list_names(cluster)))
        result = plan("handlers.py")  # beside the operator that runs
        assert result.returncode == 0, result.stdout
        assert process.stop() == 0

    put(cluster, names=["two", "three"])
    handlers.write_text(handlers.read_text().replace('"value"', '"edited"'))
    result = plan("handlers.py")
    assert result.returncode == 1
    lines = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert sorted(lines) == [
        "+ configmaps default/three",
        "- configmaps default/one",
        "1 to create, 1 to change, 1 to delete; handler calls with unknown writes: 0.",
        "~ configmaps default/two",
    ]
    assert "    -  key: value\n    +  key: edited\n" in result.stdout
    assert cluster.get("configmaps", "one")["data"] == {"key": "value"}  # nothing is deleted


def test_foreign_objects_are_errors(cluster: LocalCluster, plan: Plan, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text(textwrap.dedent(RECONCILERS))
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}})
    put(cluster, names=["one", "two"])
    result = plan("handlers.py")
    assert result.returncode == 2
    assert "! Handler 'fn': ForeignObjectError: ConfigMap default/one exists" in result.stdout


def test_what_cannot_be_listed_is_not_taken_for_settled(
    cluster: LocalCluster,
    plan: Plan,
    handlers: pathlib.Path,
) -> None:
    put(cluster, size=1)
    cluster.faults.inject(verb="list", resource="kopfexamples.kopf.dev", status=403, agent="kopf/")
    result = plan("handlers.py")
    assert result.returncode == 2
    assert "  kopfexamples.kopf.dev\n    ! " in result.stdout
    assert "Nothing to do" not in result.stdout


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ('@kopf.reconcile("absents.example.com", owns=["configmaps"])', "absents.example.com"),
        ('@kopf.on.create(kind="Absent")', "Absent"),
    ],
)
def test_what_is_not_defined_is_not_taken_for_settled(
    cluster: LocalCluster,
    plan: Plan,
    tmp_path: pathlib.Path,
    declaration: str,
    name: str,
) -> None:
    (tmp_path / "handlers.py").write_text(f"import kopf\n\n{declaration}\ndef fn(**_): ...\n")
    result = plan("handlers.py")
    assert result.returncode == 2
    assert f"  {name}\n    ! It is not in the cluster" in result.stdout


RETRIED = """
    import asyncio, kopf

    @kopf.reconcile("kopfexamples")
    async def fn(**_):
        await asyncio.sleep(0.3)
        raise kopf.TemporaryError("not yet", delay=0.01)
"""


def test_failed_handlers_are_not_retried(cluster: LocalCluster, plan: Plan, tmp_path: pathlib.Path) -> None:
    """Otherwise, there would be no end."""
    (tmp_path / "handlers.py").write_text(textwrap.dedent(RETRIED))
    put(cluster)
    result = plan("handlers.py")
    assert result.returncode == 2
    assert result.stdout.count("TemporaryError: not yet") == 1


WAITING = """
    import kopf

    @kopf.reconcile("kopfexamples", owns="configmaps")
    async def fn(spec, **_):
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}
        raise kopf.TemporaryError("not yet", delay=10000)

    @kopf.on.create("kopfexamples")
    def create_fn(**_):
        raise kopf.TemporaryError("not yet", delay=10000)
"""


def test_retries_are_not_waited_for(cluster: LocalCluster, plan: Plan, tmp_path: pathlib.Path, start: Starter) -> None:
    """What fails under the operator in the cluster, fails in the plan, and is not settled."""
    handlers = tmp_path / "handlers.py"
    handlers.write_text(textwrap.dedent(WAITING))
    put(cluster)
    with start("run", str(handlers), kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Handler 'fn' failed temporarily")
        process.wait_for("Handler 'create_fn' failed temporarily")
        assert process.stop() == 0
    result = plan("handlers.py")
    assert result.returncode == 2, result.stdout
    assert "! Handler 'fn': TemporaryError: not yet" in result.stdout
    assert "! Handler 'create_fn' would be called: create" in result.stdout
    handlers.write_text(handlers.read_text().replace('raise kopf.TemporaryError("not yet", delay=10000)', "yield", 1))
    assert plan("handlers.py").returncode == 1


def list_names(cluster: LocalCluster) -> list[str]:
    return [item["metadata"]["name"] for item in request(cluster, "GET", CONFIGS)["items"]]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


MODELS = """
    import dataclasses
    import kopf

    @dataclasses.dataclass
    class Spec:
        size: int

    @dataclasses.dataclass
    class Status:
        conditions: kopf.ConditionList = dataclasses.field(default_factory=list)

    class Example(kopf.CustomResource[Spec, Status], group="kopf.dev", version="v1", kind="KopfExample"):
        pass

    @kopf.reconcile(Example, owns="configmaps", id="reconcile_fn")
    async def reconcile_fn(spec: Spec, **_):
        yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": str(spec.size)}}

    @kopf.on.create(Example, id="create_fn")
    async def create_fn(spec: Spec, **_): ...
"""


def test_handlers_wait_for_objects_that_do_not_fit(
    cluster: LocalCluster, plan: Plan, tmp_path: pathlib.Path, start: Starter
) -> None:
    """Their conditions are a part of the plan; the handlers are not."""
    handlers = tmp_path / "handlers.py"
    handlers.write_text(textwrap.dedent(MODELS))
    put(cluster, size="text")
    text = "waits: The object does not fit KopfExample of kopf.dev/v1: spec.size: Expected `int`, got `str`\n"
    for args in [[], ["--call"], ["--no-call"]]:
        result = plan("handlers.py", *args)
        assert result.returncode == 1, result.stdout + result.stderr
        assert result.stdout.count(f"    ! Handler 'reconcile_fn' {text}") == 1
        assert result.stdout.count(f"    ! Handler 'create_fn' {text}") == 1
        assert "would be called" not in result.stdout
        assert "    +    reason: InvalidSpec\n" in result.stdout
        assert "0 to create, 1 to change, 0 to delete; handler calls with unknown writes: 0" in result.stdout
    with start("run", str(handlers), kubeconfig=cluster.kubeconfig) as process:
        wait_for(lambda: "conditions" in request(cluster, "GET", f"{PATH}/obj").get("status", {}))
        assert process.stop() == 0
    result = plan("handlers.py")
    assert result.returncode == 0, result.stdout
    assert f"    ! Handler 'create_fn' {text}" in result.stdout
    assert "Nothing to do." in result.stdout
    calls = json.loads(plan("handlers.py", "--json").stdout)["calls"]
    assert {(call["handler"], call["called"], bool(call["mismatch"])) for call in calls} == {
        ("Handler 'reconcile_fn'", False, True),
        ("Handler 'create_fn'", False, True),
    }
