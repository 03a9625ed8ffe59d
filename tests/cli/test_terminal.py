"""What people see at their terminals, and what machines get instead."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest

from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE, Starter

GETTING_STARTED = (EXAMPLE.parent.parent / "docs" / "getting-started.md").read_text()
HANDLERS = str(EXAMPLE / "handlers.py")
OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj1"}, "spec": {"duration": "1m"}}
COLOUR = re.compile(r"\x1b\[[\d;]*m")

SOME_HANDLERS = """
import kopf

@kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT)
def create_fn(spec, **_):
    spec["size"]

@kopf.timer("kopfexamples", interval=0.1)
def tick(patch, retry, **_):
    patch.status["ticked"] = True
"""


def test_for_people(start: Starter, cluster: LocalCluster) -> None:
    with start("run", "-A", HANDLERS, kubeconfig=cluster.kubeconfig, terminal=True) as process:
        process.wait_for("ready: ")
        cluster.apply(OBJ)
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        process.press_ctrl_c()
        assert process.wait() == 0
    lines = [COLOUR.sub("", line) for line in process.output.splitlines()]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d INFO  .*", line) for line in lines), lines
    assert [line[15:] for line in lines] == [
        "ready: 3 handlers, watching kopfexamples.kopf.dev/v1 in all namespaces, as kubernetes-admin, standalone",
        "default/obj1  Hello, obj1! Your duration is 1m.",
        "default/obj1  Handler 'create_fn' succeeded.",
        "default/obj1  Creation is processed: 1 succeeded; 0 failed.",
        "Signal SIGINT is received. Operator is stopping.",
    ]
    assert "\x1b[32mINFO \x1b[0m" in process.output
    assert "\x1b[36mdefault/obj1\x1b[0m" in process.output


def test_getting_started_shows_what_there_is_to_see(start: Starter, tmp_path: pathlib.Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    [shown] = re.findall(r"^```\n(\d\d:.*?)^```", GETTING_STARTED, re.MULTILINE | re.DOTALL)
    with start("dev", "handlers.py", "--apply", "crd.yaml", "--apply", "obj.yaml", terminal=True) as process:
        process.wait_for("Applied obj.yaml")
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        printed = COLOUR.sub("", process.output)
    assert sorted(map(_mask, printed.splitlines())) == sorted(map(_mask, shown.splitlines()))


def _mask(line: str) -> str:
    """Leave out the times, the ports, the tokens, the names of files."""
    return re.sub(r"^[^ ]*:\d\d |:\d{4,5}|token=.*|KUBECONFIG=.*", "", line.strip())


FULL = r"^\[20..-..-.. ..:..:..,...\] kopf\._core\.engines\.a \[INFO    \] Initial authentication has finished\.$"


@pytest.mark.parametrize(
    ("args", "terminal", "pattern"),
    [
        ([], False, FULL),
        (["--log-format=full"], True, FULL),
        (["--log-format=plain"], True, r"^Initial authentication has finished\.$"),
        (["--log-format=json"], True, r'^{"message": "Initial authentication has finished\.", .*}$'),
        (["--log-refkey=ref"], True, FULL),
    ],
)
def test_for_machines(
    start: Starter,
    cluster: LocalCluster,
    args: list[str],
    terminal: bool,
    pattern: str,
) -> None:
    with start("run", "-A", *args, HANDLERS, kubeconfig=cluster.kubeconfig, terminal=terminal) as process:
        process.wait_for(pattern)
        process.wait_for("Default peering object is not found, falling back to the standalone mode.")
        cluster.apply(OBJ)
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        assert "\x1b" not in process.output
        process.wait_for(
            "ready: 3 handlers, watching kopfexamples.kopf.dev/v1 in all namespaces, as kubernetes-admin, standalone"
        )


def test_nothing_is_asked_for_a_line_that_nobody_sees(start: Starter, cluster: LocalCluster) -> None:
    with start("run", "-A", "--quiet", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        cluster.apply(OBJ)
        cluster.wait_for("kex", "obj1", lambda obj: "create_fn" in obj.get("status", {}))
    assert "ready: " not in process.output
    assert ("create", "selfsubjectreviews", 201) not in cluster.counters


@pytest.mark.parametrize(
    ("env", "terminal", "has_colours"),
    [
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"NO_COLOR": "", "FORCE_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours(
    start: Starter,
    cluster: LocalCluster,
    env: dict[str, str],
    terminal: bool,
    has_colours: bool,
) -> None:
    with start("run", "-A", HANDLERS, kubeconfig=cluster.kubeconfig, terminal=terminal, **env) as process:
        process.wait_for(r"^\S+ \S*INFO \S* ready: ")
        assert ("\x1b[" in process.output) is has_colours


def test_the_name_of_the_user_is_not_worth_failing(start: Starter, cluster: LocalCluster) -> None:
    cluster.faults.inject(403, path="/apis/authentication.k8s.io/v1/selfsubjectreviews")
    args = ["-n", "default", "-n", "two", "--standalone", HANDLERS]
    with start("run", *args, kubeconfig=cluster.kubeconfig, terminal=True) as process:
        process.wait_for("ready: 3 handlers, watching kopfexamples.kopf.dev/v1 in default, standalone$")
        assert "selfsubjectreviews" not in process.output


def test_errors_and_routine(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    """What happens all the time, is not shown; what fails, is named with its class, and stands out."""
    (tmp_path / "some.py").write_text(SOME_HANDLERS)
    cluster.apply(OBJ)
    with start("run", "-A", "some.py", kubeconfig=cluster.kubeconfig, terminal=True) as process:
        process.wait_for(r"\x1b\[1;31mERROR\x1b\[0m .* will stop now: KeyError: 'size'\x1b\[0m$")
        process.wait_for("KeyError: 'size'\x1b\\[0m$", times=2)
        cluster.wait_for("kex", "obj1", lambda obj: bool(obj.get("status", {}).get("ticked")))
        assert "tick" not in process.output
        assert "Timer" not in str([event["message"] for event in cluster.list("events")])


def test_long_listings_show_their_progress(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "some.py").write_text("import kopf\n\nkopf.index('configmaps', id='i')(lambda name, **_: name)\n")
    for number in range(5_500):
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}})
    with start("run", "-A", "--standalone", "some.py", kubeconfig=cluster.kubeconfig, terminal=True) as process:
        process.wait_for("ready: ")
    lines = [COLOUR.sub("", line)[15:] for line in process.output.splitlines()]
    assert re.fullmatch(r"Listing of configmaps.v1 in the whole cluster: 500 of 5,5\d\d objects by now\.", lines[0])
    assert re.fullmatch(r"Listing of configmaps.v1 in the whole cluster: all 5,5\d\d objects are there\.", lines[-2])


def test_development(start: Starter, tmp_path: pathlib.Path) -> None:
    """The lines of the cluster are told from those of the operator."""
    (tmp_path / "handlers.py").write_text(SOME_HANDLERS)
    crd = str(EXAMPLE / "crd.yaml")
    with start("dev", "handlers.py", "--apply", crd, "--apply", str(EXAMPLE / "obj.yaml"), terminal=True) as process:
        process.wait_for("KeyError")
        process.press_ctrl_c()
        assert process.wait() == 0
    lines = [COLOUR.sub("", line) for line in process.output.splitlines()]
    tags = {
        "cluster is up": "dev",
        "is started": "dev",
        "Applied": "dev",
        "ready: ": "INFO",
        "will stop now": "ERROR",
        "Everything is stopped.": "dev",
    }
    for text, tag in tags.items():
        assert any(re.fullmatch(rf"\d\d:\d\d:\d\d {tag:5} .*{text}.*", line) for line in lines), text
    assert "\x1b[1;35mdev  \x1b[0m" in process.output
