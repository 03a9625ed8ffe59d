from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Iterator

import pytest

import kopf
from kopf.testing import KopfRunner, LocalCluster
from tests.cli.conftest import EXAMPLE
from tests.patience import PATIENCE

HANDLERS = str(EXAMPLE / "handlers.py")
OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj1"}}


def wait_until_handled(cluster: LocalCluster, name: str) -> None:
    cluster.wait_for(
        "kopfexamples",
        name,
        lambda obj: "kopf.zalando.org/last-handled-configuration" in obj["metadata"]["annotations"],
    )


def make_registry() -> kopf.OperatorRegistry:
    """A registry with a login that does not depend on which client libraries other tests have imported."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login_fn(**kwargs: object) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**kwargs)

    return registry


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return make_registry()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


def test_operator_in_the_background(cluster: LocalCluster) -> None:
    with KopfRunner(["run", "-A", "--verbose", HANDLERS], timeout=PATIENCE) as runner:
        cluster.apply(OBJ)
        wait_until_handled(cluster, "obj1")
    assert runner.exit_code == 0
    assert runner.exception is None
    assert runner.exc_info is None
    for output in (runner.stdout, runner.stderr, runner.output, runner.stdout_bytes.decode()):
        assert "[default/obj1] Hello, obj1!" in output
    assert runner.future.result().exit_code == 0


def test_registry_and_settings(cluster: LocalCluster) -> None:
    registry = make_registry()
    settings = kopf.OperatorSettings()
    seen: list[kopf.OperatorSettings] = []

    @kopf.on.startup(registry=registry)
    def startup_fn(settings: kopf.OperatorSettings, **_: object) -> None:
        seen.append(settings)

    with KopfRunner(["run"], registry=registry, settings=settings, timeout=PATIENCE):
        pass
    assert len(seen) == 1
    assert seen[0] is settings


def test_errors_of_the_operator_are_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nonexistent"))
    runner = KopfRunner(["run", HANDLERS], registry=make_registry(), timeout=PATIENCE)
    with pytest.raises(kopf.LoginError), runner:
        runner.future.result(timeout=PATIENCE)
    assert runner.exit_code == 1
    assert isinstance(runner.exception, kopf.LoginError)
    assert runner.exc_info is not None
    assert runner.exc_info[:2] == (kopf.LoginError, runner.exception)


def test_errors_of_the_operator_can_be_suppressed(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nonexistent"))
    with KopfRunner(["run"], registry=make_registry(), timeout=PATIENCE, reraise=False) as runner:
        runner.future.result(timeout=PATIENCE)
    assert isinstance(runner.exception, kopf.LoginError)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("raise ValueError('boom')", ValueError, "^boom"),
        ("import nosuchmodule", ModuleNotFoundError, "^No module named 'nosuchmodule'"),
        ("def fn(:", SyntaxError, "invalid syntax"),
        ("raise SystemExit(3)", SystemExit, "^3"),
        (None, FileNotFoundError, "handlers.py"),
    ],
)
def test_errors_of_the_import_are_raised_as_they_are(
    tmp_path: pathlib.Path,
    code: str | None,
    error: type[BaseException],
    message: str,
) -> None:
    path = tmp_path / "handlers.py"
    if code is not None:
        path.write_text(code)
    runner = KopfRunner(["run", str(path)], timeout=PATIENCE)
    with pytest.raises(error, match=message) as e, runner:
        pass
    assert runner.exception is e.value
    assert runner.exit_code == (3 if error is SystemExit else 1)
    assert error is SystemExit or str(path) in runner.output  # where it is, as the command line says it


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("@kopf.on.create('kopfexamples')\ndef fn(spce, **_):\n    pass\n", r"handlers.py:2: fn\(\) requires 'spce'"),
        ("@kopf.timer('kopfexamples', interval='10s')\ndef fn(**_):\n    pass\n", r"handlers.py:2: interval= must be"),
    ],
    ids=["function", "option"],
)
def test_declarations_that_cannot_work_are_raised_as_they_are(tmp_path: pathlib.Path, code: str, message: str) -> None:
    path = tmp_path / "handlers.py"
    path.write_text(f"import kopf\n{code}")
    runner = KopfRunner(["run", str(path)], timeout=PATIENCE)
    with pytest.raises(kopf.DeclarationError, match=message) as e, runner:
        pass
    assert runner.exception is e.value
    assert runner.exit_code == 1
    assert "Traceback" not in runner.output


def test_errors_of_the_test_win(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nonexistent"))
    runner = KopfRunner(["run"], registry=make_registry(), timeout=PATIENCE)
    with pytest.raises(ZeroDivisionError), runner:
        _ = runner.future.result(timeout=PATIENCE).exit_code / 0


def test_wrong_usage_of_the_command() -> None:
    runner = KopfRunner(["run", "--nonexistent"], timeout=PATIENCE)
    with pytest.raises(SystemExit) as e, runner:
        pass
    assert "No such option" in e.value.__notes__[0]  # it is shown by pytest, so it is clear why
    assert runner.exit_code == 2
    assert "No such option" in runner.stderr


def test_arguments_go_to_the_runner_of_click() -> None:
    with KopfRunner(["run", "--help"], timeout=PATIENCE, env={"KOPF_RUN_PRIORITY": "1"}, color=True) as runner:
        pass
    assert runner.exit_code == 0
    assert runner.output.startswith("Usage: kopf run")
    with KopfRunner(["run"], timeout=PATIENCE, env={"KOPF_RUN_PRIORITY": "high"}, reraise=False) as runner:
        pass
    assert "'high' is not a valid integer" in runner.output


def test_operators_that_do_not_stop_in_time(cluster: LocalCluster) -> None:
    registry, started, released = make_registry(), threading.Event(), threading.Event()

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_: object) -> None:
        while not released.is_set():
            await asyncio.sleep(0.01)

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_: object) -> None:
        started.set()

    runner = KopfRunner(["run"], registry=registry, timeout=0.5)
    with pytest.raises(TimeoutError, match="not stopped in 0.5 seconds"), runner:
        started.wait(PATIENCE)
    released.set()
    assert runner.future.result(timeout=PATIENCE).exit_code == 0


def test_outcome_is_not_known_in_advance(cluster: LocalCluster) -> None:
    runner = KopfRunner(["run", HANDLERS], timeout=PATIENCE)
    with pytest.raises(RuntimeError, match="known only when the operator has stopped"):
        _ = runner.output
    with runner, pytest.raises(RuntimeError, match="known only when the operator has stopped"):
        _ = runner.exit_code
    assert runner.exit_code == 0
