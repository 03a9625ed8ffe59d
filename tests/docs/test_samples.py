"""Whatever is in the docs must be true: the samples are executed."""

from __future__ import annotations

import importlib
import operator
import pathlib
import re
import sys
import types
from typing import Any

import pytest
import yaml

import kopf
from kopf_cluster import LocalCluster
from tests.docs.conftest import ROOT, get_blocks
from tests.forging import Forge
from tests.patience import LONG_PATIENCE

DOCS = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


def run_samples(path: pathlib.Path, **known: Any) -> dict[str, Any]:
    """
    Run all samples of the page one by one, as if they were in one file; some things are known to readers.

    A sample that begins with the name of the handlers' file is that file: the others import it.
    """
    namespace: dict[str, Any] = {"kopf": kopf, **known}
    handlers = types.ModuleType("handlers")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(sys.modules, "handlers", handlers)
        for n, block in enumerate(get_blocks(path, "python")):
            place = vars(handlers) if block.startswith("# handlers.py\n") else namespace
            exec(compile(block, f"{path.name}, sample {n}", "exec"), place)
    return namespace


WITH_SAMPLES = [path for path in DOCS if get_blocks(path, "python")]


@pytest.mark.parametrize("page", WITH_SAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_samples_are_valid(page: pathlib.Path) -> None:
    """With a cluster of its own for those pages that do something to it, even to restart it."""
    if any(re.search(r"\bcluster\.", block) for block in get_blocks(page, "python")):
        with LocalCluster() as cluster:
            run_samples(page, cluster=cluster)
    else:
        run_samples(page)


def test_manifests_are_valid() -> None:
    assert [path for path in DOCS for block in get_blocks(path, "yaml") if not list(yaml.safe_load_all(block))] == []


def test_samples_declare_handlers(registry: kopf.OperatorRegistry) -> None:
    run_samples(ROOT / "README.md")
    assert [handler.id for handler in registry.resources] == ["create_fn", "update_fn/spec.duration", "delete_fn"]


@pytest.mark.parametrize(
    "name",
    [
        "test_creation",
        "test_absent_replicas",
        "test_scaling",
        "test_other_changes_do_not_matter",
        "test_limits",
        "test_daily_backups",
        "test_a_crash_in_the_middle",
        "test_the_api_is_unreliable",
        "test_objects",
    ],
)
def test_tests_of_operators(name: str) -> None:
    run_samples(ROOT / "docs" / "testing-reference.md")[name]()


@pytest.mark.timeout(3 * LONG_PATIENCE)  # it explores twice
def test_the_tutorial_of_testing_comes_out_as_told(tmp_path: pathlib.Path, pytests: Forge) -> None:
    path = ROOT / "docs" / "testing.md"
    handlers, *tests, remedy = get_blocks(path, "python")
    (tmp_path / "crd.yaml").write_text(get_blocks(path, "yaml")[0])
    (tmp_path / "handlers.py").write_text(handlers)
    (tmp_path / "test_operator.py").write_text("\n\n".join(tests))
    told = [line.strip() for line in get_blocks(path, "text")[0].splitlines()]
    done = run_pytest(pytests, tmp_path)
    assert [line for line in told if line not in done.splitlines()] == []
    assert "1 failed, 6 passed" in done

    begin = remedy.splitlines()[0]
    (tmp_path / "handlers.py").write_text(handlers[: handlers.index(begin)] + remedy)
    assert "7 passed" in run_pytest(pytests, tmp_path)


def run_pytest(pytests: Forge, folder: pathlib.Path) -> str:
    args = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:asyncio", "."]
    done = pytests.run(*args, cwd=folder, timeout=LONG_PATIENCE)
    return "\n".join(line.removeprefix("E ").strip() for line in done.stdout.splitlines())


async def test_coroutines_are_called_in_async_tests() -> None:
    await run_samples(ROOT / "docs" / "testing-reference.md")["test_monitor"]()


async def test_operators_are_run_in_async_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    # If it is imported by other tests, the login goes through it, and it reads the environment on import only.
    monkeypatch.delitem(sys.modules, "kubernetes", raising=False)
    await run_samples(ROOT / "docs" / "testing-reference.md")["test_async"](monkeypatch)


def test_manifests_of_getting_started_are_applicable() -> None:
    crd, obj = get_blocks(ROOT / "docs" / "getting-started.md", "yaml")
    with LocalCluster() as cluster:
        cluster.apply(crd)
        cluster.apply(obj)


def exists(name: str) -> bool:
    try:
        operator.attrgetter(name)(kopf)
    except AttributeError:
        return name in ("dev", "zalando")
    return True


def test_all_mentioned_names_exist() -> None:
    importlib.import_module("kopf.testing")  # they are not there until somebody imports them
    importlib.import_module("kopf.cli")
    pattern = r"`@?kopf\.((?:on\.|testing\.|lifecycles\.)?\w+)"
    names = {(path.name, name) for path in DOCS for name in re.findall(pattern, path.read_text())}
    assert len(names) > 100
    assert {(page, name) for page, name in names if not exists(name)} == set()


def test_operators_are_run_in_tests(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crd, obj = get_blocks(ROOT / "docs" / "getting-started.md", "yaml")
    (tmp_path / "crd.yaml").write_text(crd)
    (tmp_path / "obj.yaml").write_text(obj)
    (tmp_path / "handlers.py").write_text(get_blocks(ROOT / "docs" / "getting-started.md", "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kubernetes", raising=False)
    namespace: dict[str, Any] = {}
    exec(get_blocks(ROOT / "docs" / "testing-reference.md", "python")[0], namespace)
    namespace["test_operator"](monkeypatch)


INSTALLATIONS = [*DOCS, *(ROOT / "examples").rglob("requirements.txt"), *(ROOT / "examples").rglob("Dockerfile")]


def find_installations(path: pathlib.Path) -> list[str]:
    pattern = r"^kopf\b.*" if path.name == "requirements.txt" else r"pip install[^`\n]*?\bkopf\b[^`\s]*"
    return re.findall(pattern, path.read_text(), re.MULTILINE)


def test_installations_bring_this_project_and_not_the_original_one() -> None:
    """Both have the same name on PyPI; the original one has the versions below 2."""
    found = {path: find_installations(path) for path in INSTALLATIONS}
    assert [(path, text) for path, texts in found.items() for text in texts if ">=2" not in text] == []
    assert [path for path, texts in found.items() if not texts and path.name == "requirements.txt"] == []


def test_the_hierarchy_of_errors_is_drawn_as_it_is() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    [drawing] = re.findall(r"^```\n(Exception\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    parents: dict[int, str] = {}
    drawn: dict[str, str] = {}
    for depth, name in re.findall(r"^([ │├└─]*)(?:kopf\.)?(\w+)", drawing, re.MULTILINE):
        parents[len(depth)] = name
        drawn[name] = parents.get(len(depth) - 4, "")
    drawn.pop("Exception")
    assert drawn.pop("ConnectionError") == "Exception"
    assert drawn == {name: getattr(kopf, name).__bases__[0].__name__ for name in drawn}
    assert {name for name in kopf.__all__ if name.startswith("API")} <= drawn.keys()


def test_explorations_come_out_as_told(capsys: pytest.CaptureFixture[str]) -> None:
    samples = run_samples(ROOT / "docs" / "exploring.md")
    assert "the operator starts" in capsys.readouterr().out
    samples["test_careful_operator"].exploration.explore(runs=22).check()
    samples["test_schema"]()
    with pytest.raises(AssertionError, match="1 of 1 did not converge: crash before write 2"):
        samples["test_careless_operator"].exploration.explore(only="crash before write 2").check()
