"""``kopf explain``: by the object, by the files of the operator, by a running operator; and all that can be missing."""

from __future__ import annotations

import copy
import json
import pathlib
import socket
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kopf.cli import main
from kopf_cluster import LocalCluster
from tests.cli.api import request
from tests.cli.conftest import EXAMPLE, Starter
from tests.testing.kopfexamples import CRD

EVENTS = "/api/v1/namespaces/default/events"
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples/obj"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
OBJ = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "obj", "labels": {"app": "api"}},
    "spec": {"duration": "1m"},
}
HANDLERS = """
    import kopf

    @kopf.on.create("kopfexamples", labels={"app": "web"})
    def create_fn(**_): ...

    @kopf.on.update("kopfexamples")
    def update_fn(**_): ...

    @kopf.on.create("pods")
    def pod_fn(**_): ...
"""

Explain = Callable[..., Result]


@pytest.fixture
def handlers(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "explained_handlers.py"
    path.write_text(textwrap.dedent(HANDLERS))
    return str(path)


@pytest.fixture
def cluster(cluster: LocalCluster) -> LocalCluster:
    """The same cluster, with the object as nobody has handled it."""
    put(cluster)
    return cluster


@pytest.fixture
def explain(cluster: LocalCluster) -> Explain:
    def explain(*args: str, **env: str) -> Result:
        env = {"KUBECONFIG": str(cluster.kubeconfig), **env}
        result = CliRunner().invoke(main, ["explain", *args], env=env, catch_exceptions=False)
        assert all(char.isprintable() or char == "\n" for char in result.output)
        return result

    return explain


def put(cluster: LocalCluster, *, annotations: Mapping[str, str] | None = None, **spec: Any) -> None:
    """Put the object there, as if an operator had left these annotations."""
    obj = copy.deepcopy(OBJ)
    obj["metadata"]["annotations"] = annotations or {}  # type: ignore[index]
    obj["spec"].update(spec)  # type: ignore[attr-defined]
    cluster.apply(obj)


# --- what is told ---


def test_the_object_alone(cluster: LocalCluster, explain: Explain) -> None:
    put(
        cluster,
        annotations={
            LAST_HANDLED: '{"spec":{"duration":"5m"},"metadata":{"labels":{"app":"api"}}}',
            "kopf.zalando.org/create_fn": json.dumps(
                {
                    "started": "2026-11-23T00:00:00+00:00",
                    "delayed": "2026-11-23T00:01:00+00:00",
                    "purpose": "update",
                    "retries": 2,
                    "success": False,
                    "failure": False,
                    "message": "it is \x1b[31mred\x1b[0m",
                }
            ),
        },
    )
    result = explain("kex", "obj")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("KopfExample default/obj (kopfexamples.v1.kopf.dev), created ")
    assert "  In short: the object has changed since it was handled last." in lines
    assert '  ~ spec.duration: "5m" → "1m"' in lines
    [progress] = [line for line in lines if line.startswith("  kopf.zalando.org/create_fn: ")]
    assert "should have been tried again" in progress
    assert "after 2 attempts, for update; the last error: it is \\x1b[31mred\\x1b[0m" in progress
    assert "  No operator was asked: see --endpoint." in lines
    assert "  The handlers are unknown: name the files of the operator." in lines


def test_the_files_of_the_operator(cluster: LocalCluster, explain: Explain, handlers: str) -> None:
    result = explain("KopfExample", "obj", handlers)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[lines.index("  create create_fn: no") + 1] == '    the label \'app\' must be "web", and is "api"'
    assert any(line.startswith("  update update_fn: not now: is for updates, but the object is new") for line in lines)
    assert "  create 'pod_fn' is for 'pods'" in lines


def test_resources_with_names_as_in_kubectl(cluster: LocalCluster, explain: Explain, handlers: str) -> None:
    for resource in ("kex", "kopfexamples.kopf.dev", "kopfexamples.v1.kopf.dev"):
        result, expected = explain(f"{resource}/obj", handlers, "--json"), explain(resource, "obj", handlers, "--json")
        assert json.loads(result.output)["handlers"] == json.loads(expected.output)["handlers"]


@pytest.mark.parametrize("args", [["kex"], ["kex/"], ["kex/a/b"], ["kex", "a/b"]])
def test_names_that_are_none(explain: Explain, args: list[str]) -> None:
    result = explain(*args)
    assert result.exit_code == 2
    assert "Name one object: kopf explain RESOURCE NAME, or RESOURCE/NAME." in result.output


def test_files_with_no_handlers_for_the_resource(cluster: LocalCluster, explain: Explain, handlers: str) -> None:
    output = explain("namespace", "default", handlers).output
    assert output.startswith("Namespace default (namespaces.v1)")
    assert "  None of the handlers in the files is for this resource." in output
    assert "  create 'create_fn' is for 'kopfexamples'" in output


def test_programs_get_all_of_it(cluster: LocalCluster, explain: Explain, handlers: str) -> None:
    answer = json.loads(explain("kopfexamples.kopf.dev", "obj", handlers, "--json").stdout)
    assert answer["schema"] == "kopf.dev/explanation/v1"
    assert (answer["source"], answer["operator"], answer["object"]["name"]) == ("object", None, "obj")
    assert [info["verdict"] for info in answer["handlers"]] == ["rejected", "later"]
    [rejection] = answer["handlers"][0]["rejections"]
    assert (rejection["filter"], rejection["key"], rejection["expected"], rejection["actual"]) == (
        "labels",
        "app",
        '"web"',
        '"api"',
    )


def test_programs_get_nothing_of_what_the_files_print(
    cluster: LocalCluster,
    explain: Explain,
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "printing.py").write_text(
        "import kopf\nprint('imported')\n"
        "@kopf.on.create('kopfexamples', when=lambda **_: print('asked'))\ndef fn(**_): ...\n"
    )
    result = explain("kopfexamples.kopf.dev", "obj", str(tmp_path / "printing.py"), "--json")
    assert json.loads(result.stdout)["handlers"][0]["verdict"] == "rejected"
    assert {*result.stderr.split()} == {"imported", "asked"}


def test_events_are_told_the_latest_first(cluster: LocalCluster, explain: Explain) -> None:
    uid = request(cluster, "GET", PATH)["metadata"]["uid"]
    for number, target in enumerate([uid, uid, "other"]):
        request(
            cluster,
            "POST",
            EVENTS,
            {
                "metadata": {"name": f"event{number}"},
                "type": "Normal",
                "reason": "Logging",
                "count": 1 + number,
                "message": f"message {number} \x1b]0;title\x07",
                "lastTimestamp": f"2026-11-23T00:0{number}:00Z",
                "involvedObject": {"uid": target, "name": "obj", "namespace": "default"},
            },
        )
    lines = explain("kex", "obj").output.splitlines()
    first, second = [line for line in lines if "Normal Logging" in line]
    assert first.endswith("message 1 \\x1b]0;title\\x07 (×2)")
    assert second.endswith("message 0 \\x1b]0;title\\x07")


def test_nothing_of_secrets_is_told(cluster: LocalCluster, explain: Explain) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "obj"}, "stringData": {"a": "hunter22"}})
    uid = request(cluster, "GET", "/api/v1/namespaces/default/secrets/obj")["metadata"]["uid"]
    request(
        cluster,
        "POST",
        EVENTS,
        {
            "metadata": {"name": "event"},
            "type": "Error",
            "reason": "Logging",
            "message": "It is not hunter22.",
            "involvedObject": {"uid": uid, "name": "obj", "namespace": "default"},
        },
    )
    output = explain("secret", "obj").output + explain("secrets", "obj", "--json").output
    assert "It is not (hidden)." in output
    assert "hunter22" not in output


def test_known_operators_are_told(cluster: LocalCluster, explain: Explain) -> None:
    cluster.apply(EXAMPLE.parent / "peering" / "crds.yaml")
    record = {"lifetime": 60, "lastseen": "2100-01-01T00:00:00+00:00"}
    master = {**record, "priority": 9, "group": "default/operator"}
    cluster.apply(
        {
            "apiVersion": "kopf.dev/v1",
            "kind": "ClusterKopfPeering",
            "metadata": {"name": "default"},
            "status": {"slave": {**record, "priority": 1}, "master": master, "replica": master},
        }
    )
    [line] = [line for line in explain("kex", "obj").output.splitlines() if "in the peering 'default'" in line]
    assert line.endswith(": master (priority 9), slave (priority 1); all but the first one are paused.")


def test_objects_handled_under_another_prefix(cluster: LocalCluster, explain: Explain) -> None:
    put(
        cluster,
        annotations={
            "example.com/kopf-managed": "yes",
            "example.com/last-handled-configuration": '{"spec":{"duration":"5m"}}',
        },
    )
    output = explain("kex", "obj").output
    assert '~ spec.duration: "5m" → "1m"' in output
    assert "kept in the annotations under 'example.com'" in output


def test_objects_handled_with_the_state_in_the_status(cluster: LocalCluster, explain: Explain, handlers: str) -> None:
    state = {
        "last-handled-configuration": '{"spec":{"duration":"5m"}}',
        "progress": {
            "update_fn": {"started": "2026-11-23T00:00:00+00:00", "retries": 3, "purpose": "update", "message": "oops"},
        },
    }
    request(cluster, "PUT", f"{PATH}/status", {**request(cluster, "GET", PATH), "status": {"kopf": state}})
    lines = explain("kex", "obj", handlers).output.splitlines()
    assert '  ~ spec.duration: "5m" → "1m"' in lines
    line = lines[lines.index("  update update_fn: yes: is for this update") + 1]
    assert line.startswith("    is tried again at once, after 3 attempts")
    assert line.endswith("the last error: oops")


# --- what can be in the way ---


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["kopfexmples", "obj"], "There is no resource 'kopfexmples' in the cluster. Did you mean 'kopfexamples'"),
        (["kex", "obk"], "There is no 'obk' of kopfexamples.kopf.dev in the namespace 'default'. Did you mean 'obj'?"),
        (["kex", "nothing-like-that"], "There is no 'nothing-like-that' of kopfexamples.kopf.dev"),
        (
            ["kex", "obj", "-n", "nosuch"],
            "in the namespace 'nosuch'. There is one in: default; choose it with --namespace.",
        ),
        (["", "obj"], "'' is not a name of a resource"),
        (["kex", "obj", "nosuch.py"], "Cannot load 'nosuch.py'"),
        (["kex/obj", "nosuch.py"], "Cannot load 'nosuch.py'"),
        (["kex/obk"], "There is no 'obk' of kopfexamples.kopf.dev in the namespace 'default'. Did you mean 'obj'?"),
    ],
)
def test_mistakes(cluster: LocalCluster, explain: Explain, args: list[str], text: str) -> None:
    result = explain(*args)
    assert result.exit_code == 1
    assert text in result.output


def test_ambiguous_names(cluster: LocalCluster, explain: Explain) -> None:
    other = copy.deepcopy(CRD)
    other["metadata"]["name"], other["spec"]["group"] = "kopfexamples.example.com", "example.com"
    cluster.apply(other)
    result = explain("kex", "obj")
    assert result.exit_code == 1
    assert "'kex' is ambiguous: kopfexamples.example.com, kopfexamples.kopf.dev." in result.output
    assert explain("kopfexamples.kopf.dev", "obj").exit_code == 0


def test_what_is_not_permitted(cluster: LocalCluster, explain: Explain) -> None:
    cluster.faults.inject(status=403, resource="events", verb="list")
    result = explain("kex", "obj")
    assert result.exit_code == 0
    assert "You are not permitted to read the events" in result.output
    assert "resources: [events], verbs: [list]" in result.output
    cluster.faults.inject(status=403, resource="kopfexamples", verb="get")
    result = explain("kex", "obj")
    assert result.exit_code == 1
    assert "You are not permitted to read the object" in result.output
    assert "apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [get]" in result.output


def test_unreachable_clusters(explain: Explain, tmp_path: pathlib.Path, cluster: LocalCluster) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text(cluster.kubeconfig.read_text().replace(cluster.url, "https://127.0.0.1:1"))
    result = explain("kex", "obj", KUBECONFIG=str(broken))
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output


@pytest.mark.parametrize(
    "annotations",
    [
        {LAST_HANDLED: "not json", "kopf.zalando.org/update_fn": "not json"},
        {LAST_HANDLED: "[1]", "kopf.zalando.org/update_fn": '["started"]'},
        {LAST_HANDLED: '{"metadata": 1}', "kopf.zalando.org/update_fn": '{"started": 1, "retries": [], "delayed": {}}'},
        {LAST_HANDLED: '{"spec":{"a":' + "[" * 60_000 + "]" * 60_000 + "}}"},
        {LAST_HANDLED: '{"spec": "' + "x" * 240_000 + '"}'},
        {"kopf.zalando.org/update_fn": '{"started": "0001-01-01T00:00:00", "delayed": "9999-12-31T23:59:59.999999"}'},
        {"kopf.zalando.org/update_fn": '{"started": "x", "message": "\\u001b[2J", "retries": 1e300}'},
        {"kopf.zalando.org/update_fn": '{"started": "x", "retries": 1, "subrefs": ["\\u001b[2J", "update_fn"]}'},
        {"example.com/kopf-managed": "\x1b[2J", "kopf.zalando.org/kopf-managed": "yes"},
    ],
)
def test_hostile_annotations(
    cluster: LocalCluster,
    explain: Explain,
    handlers: str,
    annotations: Mapping[str, str],
) -> None:
    put(cluster, annotations=annotations, text="\x1b]0;title\x07\u202e")
    for args in ["kex", "obj"], ["kex", "obj", handlers]:
        result = explain(*args)
        assert result.exit_code == 0
        assert result.stdout.startswith("KopfExample default/obj")
        assert len(result.stdout) < 5000
    json.loads(explain("kex", "obj", handlers, "--json").stdout)


# --- running operators ---

TOKEN = "0123456789abcdef"


@pytest.fixture
def endpoint(cluster: LocalCluster, start: Starter, handlers: str) -> Iterator[str]:
    """An operator with a console that needs a token."""
    command = ["run", "-A", "--standalone", "--console=http://127.0.0.1:0", handlers]
    with start(*command, kubeconfig=cluster.kubeconfig, KOPF_CONSOLE_TOKEN=TOKEN) as process:
        url = process.wait_for(r"The console is served at (http://\S+)")[1]
        process.wait_for("authentication has finished")
        yield url
        assert process.stop() == 0


def test_operators_are_asked(cluster: LocalCluster, explain: Explain, endpoint: str) -> None:
    command = ["kex", "obj", "--endpoint", endpoint, "--token", TOKEN]
    while "  It is handled: there is nothing to do." not in (result := explain(*command)).output:
        pass  # until it watches the resource, and the object was handled before it was read
    assert "  In short: nothing has changed" in result.output
    result = explain("kex", "obj", "--json", KOPF_EXPLAIN_ENDPOINT=endpoint, KOPF_CONSOLE_TOKEN=TOKEN)
    answer = json.loads(result.stdout)
    assert (answer["source"], answer["operator"]["paused"]) == ("operator", [])
    assert answer["handlers"][0]["rejections"][0]["key"] == "app"
    # What the operator cannot tell, is told without it.
    result = explain("kex", "obj", "--endpoint", endpoint, "--token", "0123456789abcdeX")
    assert result.exit_code == 0
    assert ": it needs a token, which is missing or wrong" in result.output
    result = explain("kex", "nosuch", "--endpoint", endpoint, "--token", TOKEN)
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
        b"oops",
        b"HTTP/1.1 302 Found\r\nLocation: http://evil.example.com/\r\nContent-Length: 0\r\n\r\n",
        b"",
        b'HTTP/1.1 404 Not Found\r\nContent-Length: 17\r\n\r\n{"error": "\\u001b"}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n{"schema": "kopf.dev/explanation/v1"}',
    ],
)
def test_other_servers_are_no_operators(cluster: LocalCluster, explain: Explain, answer: bytes) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            received.append(connection.recv(10_000))
            connection.sendall(answer)
        server.close()

    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.start()
        result = explain("kex", "obj", "--endpoint", url, "--token", TOKEN)
        thread.join()
    assert f"Authorization: Bearer {TOKEN}".encode() in received[0]
    assert result.exit_code == 0
    assert "Cannot ask the operator at " in result.output
    assert TOKEN not in result.output


def test_redirects_are_not_followed(cluster: LocalCluster, explain: Explain) -> None:
    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                if not (request := connection.recv(10_000)):
                    return
                received.append(request)
                head = f"HTTP/1.1 302 Found\r\nLocation: {url}/other\r\nContent-Length: 0\r\n\r\n"
                connection.sendall(head.encode())

    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=serve)
        thread.start()
        assert "HTTP 302" in explain("kex", "obj", "--endpoint", url, "--token", TOKEN).output
        socket.create_connection(server.getsockname()).close()  # it comes after all others
        thread.join()
    assert len(received) == 1


def test_endpoints_that_nobody_serves(cluster: LocalCluster, explain: Explain) -> None:
    output = explain("kex", "obj", "--endpoint", "http://127.0.0.1:1").output
    assert "127.0.0.1:1: the connection has failed: Connection refused." in output
    result = explain("kex", "obj", "--endpoint", "127.0.0.1:8090")
    assert result.exit_code == 2
    assert "is not a URL" in result.output


def test_nothing_is_written(cluster: LocalCluster, explain: Explain, handlers: str) -> None:
    before = cluster.counters
    explain("kex", "obj", handlers)
    written = {key for key, count in cluster.counters.items() if before.get(key) != count}
    assert {verb for verb, *_ in written} <= {"get", "list"}, written
