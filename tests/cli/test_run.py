from __future__ import annotations

import json
import pathlib
import signal
from typing import Any

import pytest
from click.testing import CliRunner

from kopf._cluster import LocalCluster
from kopf._handlers.registry import OperatorRegistry
from kopf.cli import main
from tests.cli.conftest import EXAMPLE, Starter

OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj1"}, "spec": {"duration": "1m"}}

HANDLERS = str(EXAMPLE / "handlers.py")


def test_operator_handles_objects_until_stopped(start: Starter, cluster: LocalCluster) -> None:
    with start("run", "-A", "--standalone", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        cluster.apply(OBJ)
        process.wait_for(r"\[default/obj1\] Hello, obj1! Your duration is 1m.")
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "Traceback" not in process.output


def test_ctrl_c_stops_the_operator(start: Starter, cluster: LocalCluster) -> None:
    with start("run", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        process.press_ctrl_c()
        assert process.wait() == 0
        assert "Traceback" not in process.output


def test_second_signal_stops_the_operator_at_once(
        start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "stuck.py").write_text(
        "import time, kopf\n"
        "@kopf.on.create('kopfexamples')\n"
        "def create_fn(logger, **_):\n"
        "    logger.info('stuck')\n"
        "    time.sleep(1000)\n")
    with start("run", "stuck.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        cluster.apply(OBJ)
        process.wait_for("stuck$")
        process.press_ctrl_c()
        process.wait_for("SIGINT is received")
        process.press_ctrl_c()
        assert process.wait(3) == 128 + signal.SIGINT


def test_options_by_environment_variables(start: Starter, cluster: LocalCluster) -> None:
    env = {"KOPF_RUN_LOG_FORMAT": "json", "KOPF_RUN_LOG_REFKEY": "ref", "KOPF_RUN_NAMESPACE": "default other"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    with start("run", HANDLERS, kubeconfig=cluster.kubeconfig, **env) as process:
        process.wait_for("authentication has finished")
        cluster.apply(OBJ)
        process.wait_for('"Creation is processed')
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        lines: list[dict[str, Any]] = [json.loads(line) for line in process.output.splitlines()]
    [line] = [line for line in lines if line["message"].startswith("Hello")]
    assert line["ref"]["name"] == "obj1"
    assert line["severity"] == "info"


def test_modules(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "handlers.py").write_text((EXAMPLE / "handlers.py").read_text())
    with start("run", "-m", "package.handlers", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        cluster.apply(OBJ)
        process.wait_for("Hello, obj1!")


def test_no_way_to_log_in_is_one_clear_message(start: Starter) -> None:
    with start("run", HANDLERS) as process:
        assert process.wait() == 1
        assert "Traceback" not in process.output
        [line] = [line for line in process.output.splitlines() if "CRITICAL" in line]
    assert "kopf.cli             [CRITICAL] The operator cannot go on: " in line
    assert "kubeconfig" in line


def test_failed_startup_is_one_clear_message(
        start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "handlers.py").write_text(
        "import kopf\n"
        "@kopf.on.startup()\n"
        "def start_fn(**_):\n"
        "    raise kopf.PermanentError('not today')\n")
    with start("run", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        assert process.wait() == 1
        [line] = [line for line in process.output.splitlines() if "CRITICAL" in line]
    assert "The operator cannot go on: " in line
    assert "start_fn" in line


# ------------------------------------------------------------------ what ends before anything is started


def invoke(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["run", *args])
    assert "Traceback" not in result.output
    return result.exit_code, result.stderr


def test_nothing_to_run(registry: OperatorRegistry) -> None:
    code, output = invoke()
    assert code == 2
    assert "Nothing to run. Name the files with handlers, or modules with -m." in output


def test_no_handlers_declared(registry: OperatorRegistry, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "some_file.py"
    path.write_text("import kopf")
    code, output = invoke(str(path))
    assert code == 1
    assert f"There are no handlers in {path}. Declare them with decorators" in output
    assert "@kopf.on.create('kopfexamples')" in output


def test_scopes_exclude_each_other(registry: OperatorRegistry) -> None:
    code, output = invoke("-A", "-n", "default", HANDLERS)
    assert code == 2
    assert "Either --all-namespaces or --namespace can be used, not both." in output


def test_missing_file(registry: OperatorRegistry) -> None:
    code, output = invoke(str(EXAMPLE / "handler.py"))
    assert code == 1
    assert f"Did you mean {HANDLERS!r}?" in output


def test_sources_are_reported_even_if_loading_fails(registry: OperatorRegistry, tmp_path: pathlib.Path) -> None:
    (tmp_path / "some_good.py").write_text("")
    (tmp_path / "some_bad.py").write_text("import some_good\n1/0")
    report = tmp_path / "report"
    result = CliRunner().invoke(main, ["run", f"--report-sources={report}", str(tmp_path / "some_bad.py")])
    assert result.exit_code == 1
    assert str(tmp_path.resolve() / "some_good.py") in report.read_text().splitlines()


@pytest.mark.parametrize("option", ["--priority=1", "--peering=x", "--liveness=http://:1/"])
def test_unsupported_options_are_refused_rather_than_ignored(registry: OperatorRegistry, option: str) -> None:
    code, output = invoke(option, HANDLERS)
    assert code == 2
    assert "No such option" in output
