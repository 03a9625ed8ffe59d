"""New projects: they are complete, and their own checks and tests pass as they are."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import click.testing
import pytest

from kopf.cli import main
from kopf.testing import LocalCluster
from tests.cli.processes import ROOT, Process
from tests.forging import Forge
from tests.patience import LONG_PATIENCE, PATIENCE

COMMIT = {"vcs_info": {"vcs": "git", "commit_id": "abc"}}
LONGEST = "a" + "-very-long-name" * 3 + "-here"


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*args: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["init", *args])


def install(project: pathlib.Path) -> None:
    """Let the project believe that its environment is made: it is the one of these tests."""
    scripts = project / ".venv" / "bin"
    scripts.mkdir(parents=True)
    for path in pathlib.Path(sys.executable).parent.iterdir():
        (scripts / path.name).symlink_to(path)
    (scripts / "python").unlink()
    for name, command in {"python": "", "kopf": "-m kopf", "mypy": "-m mypy"}.items():
        (scripts / name).unlink(missing_ok=True)
        (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (scripts / name).chmod(0o755)
    (project / ".venv" / ".installed").touch()


def make(project: pathlib.Path, target: str) -> str:
    """Make something in the project, which must succeed; give what is printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(
        ["make", target],
        cwd=project,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(2 * LONG_PATIENCE)
def test_the_checks_of_new_projects_pass(folder: pathlib.Path) -> None:
    result = init("my-app")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "  cd my-app && make test && kopf dev")
    install(folder / "my-app")
    output = make(folder / "my-app", "test")
    assert "Success: no issues found" in output
    assert "7 passed" in output


@pytest.mark.parametrize("name", [LONGEST, "x", "zoo"])
def test_the_layout_does_not_depend_on_names(folder: pathlib.Path, name: str) -> None:
    init(name)
    for command in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, name], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("args", [[LONGEST, "--group=some.company.example.com"], ["x"]])
def test_the_definitions_are_those_of_the_models(folder: pathlib.Path, args: list[str], forge: Forge) -> None:
    init(*args)
    done = forge.run("crd", "handlers.py", "--check", "crd.yaml", cwd=folder / args[0])
    assert (done.returncode, done.stdout) == (0, "")


def test_new_projects_are_developed_on_a_local_cluster(folder: pathlib.Path, forge: Forge | None) -> None:
    init("my-app")
    config = folder / "kubeconfig.yaml"
    with Process(
        "dev",
        "--no-open",
        f"--kubeconfig={config}",
        cwd=folder / "my-app",
        log=folder / "output.log",
        forge=forge,
    ) as process:
        process.wait_for("Applied obj.yaml: MyApp default/sample")
        process.wait_for("succeeded")
        assert process.stop() == 0


def test_new_projects_have_manifests(folder: pathlib.Path, cluster: LocalCluster) -> None:
    init("my-app")
    install(folder / "my-app")
    make(folder / "my-app", "manifests")
    for path in sorted((folder / "my-app" / "deploy").iterdir()):
        assert cluster.apply(path)
    assert cluster.apply(folder / "my-app" / "obj.yaml")


@pytest.mark.parametrize(
    ("origin", "end", "is_for_images"),
    [
        (None, ">=2", True),
        ({"url": "https://example.com/kopf.tar.gz", "archive_info": {}}, " @ https://example.com/kopf.tar.gz", True),
        ({"url": "file:///home/jane/kopf", "dir_info": {"editable": True}}, " @ file:///home/jane/kopf", False),
        ({"url": "https://example.com/kopf.git", **COMMIT}, " @ git+https://example.com/kopf.git@abc", False),
        ({"url": "ssh://git@github.com/x/kopf.git", **COMMIT}, " @ git+ssh://git@github.com/x/kopf.git@abc", False),
        ({"url": "https://github.com/x/kopf.git", **COMMIT}, " @ git+https://github.com/x/kopf.git@abc", False),
        ({"url": "https://github.com/x/k/archive/abc.tar.gz"}, " @ https://github.com/x/k/archive/abc.tar.gz", True),
    ],
)
def test_new_projects_need_the_same_kopf(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, origin: object, end: str, is_for_images: bool
) -> None:
    """If the build of an image cannot take it from there, the command says so, and `make image` fails at once."""
    record = folder / "site" / "kopf-2.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: kopf\nVersion: 2.0\n")
    if origin is not None:
        (record / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(folder / "site")
    output = init("my-app").output
    assert (folder / "my-app" / "requirements.txt").read_text() == f"kopf[uvloop]{end}\n"
    assert f"\nkopf[dev]{end}\n" in (folder / "my-app" / "requirements-dev.txt").read_text()
    assert ("cannot install Kopf" in output) is not is_for_images
    (folder / "docker").write_text("#!/bin/sh\necho building\n")
    (folder / "docker").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "--no-print-directory", "image"],
        cwd="my-app",
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if is_for_images:
        assert (done.returncode, "building" in done.stdout) == (0, True)
    else:
        assert (done.returncode, done.stdout) == (2, f"1:kopf[uvloop]{end}\n")
        assert "Name an archive" in done.stderr


def test_folders_that_cannot_be_written_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc")
    result = init("my-operator")
    assert result.exit_code == 1
    assert result.output == "Error: Cannot write 'my-operator': No such file or directory.\n"


def test_nothing_is_overwritten(folder: pathlib.Path) -> None:
    (folder / "empty").mkdir()
    assert init("empty").exit_code == 0
    (folder / "empty" / "handlers.py").write_text("mine")
    result = init("empty")
    assert (result.exit_code, "already exists" in result.output) == (1, True)
    assert (folder / "empty" / "handlers.py").read_text() == "mine"
    (folder / "file").write_text("mine")
    assert init("file").exit_code == 1


@pytest.mark.parametrize(
    "name",
    [
        "My-app",
        "my_app",
        "-app",
        "app-",
        "1app",
        "app.one",
        "",
        "a" * 52,
        "приложение",
        "a/b",
    ],
)
def test_names_are_those_of_kubernetes(folder: pathlib.Path, name: str) -> None:
    result = init("--", name)
    assert (result.exit_code, "is not a valid name" in result.output) == (2, True)
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("name", ["none", "spec", "status"])
def test_names_do_not_clash_with_those_in_the_code(name: str) -> None:
    result = init(name)
    assert (result.exit_code, "has another meaning" in result.output) == (2, True)


@pytest.mark.parametrize("group", ["example", "Example.com", "example..com", "-example.com"])
def test_groups_are_domains(folder: pathlib.Path, group: str) -> None:
    result = init("my-app", f"--group={group}")
    assert (result.exit_code, "is not a domain" in result.output) == (2, True)
