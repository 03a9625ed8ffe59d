"""What is wrong with operators is found by ``kopf check``, and nothing is found in good ones."""

from __future__ import annotations

import json
import pathlib
import re
import sys
import unittest.mock
from collections.abc import Iterator

import click.testing
import pytest

import kopf
from kopf._checking.findings import RULES
from kopf._checking.sources import Source
from kopf.cli import main
from kopf.cli.checking import check_code
from tests.docs.conftest import ROOT, get_blocks

FOLDER = pathlib.Path(__file__).parent
PAGE = ROOT / "docs" / "check.md"
CRD = FOLDER / "crd.yaml"
PLANTED = sorted((FOLDER / "planted").glob("*.py"))
GOOD = sorted((FOLDER / "good").glob("*.py"))
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").rglob("*.py")
    if "@kopf." in path.read_text() and path.parent.name != "notebook"  # it is no operator, but runs several
)
PAGES = sorted(
    path for path in (ROOT / "docs").glob("*.md") if path != PAGE and "\n@kopf." in "".join(get_blocks(path, "python"))
)


@pytest.fixture(autouse=True)
def _clean_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is loaded is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith(("kopf", "kubernetes", "pykube", "requests", "urllib3", "starlette", "aiohttp")):
            del sys.modules[name]


def check(*args: object) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(main, ["check", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def find(*args: object) -> list[dict[str, str | int]]:
    result = check(*args, "--json")
    found: list[dict[str, str | int]] = json.loads(result.stdout)
    assert result.exit_code == int(bool(found))
    return found


MISTAKE = """{start}import time

import kopf

# \u00e9
@kopf.on.create("pods")
async def create_fn(**_):
    time.sleep(1)
"""


@pytest.mark.parametrize(
    ("start", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("# -*- coding: latin-1 -*-\n", "latin-1"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_files_are_read_as_by_python(tmp_path: pathlib.Path, start: str, encoding: str, newline: str) -> None:
    path = tmp_path / "written_elsewhere.py"
    path.write_text(MISTAKE.format(start=start), encoding=encoding, newline=newline)
    [finding] = find(path)
    assert (finding["rule"], finding["line"]) == ("blocking-call", 8 + bool(start))


def test_files_that_exit_are_reported(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "exiting.py"
    path.write_text("import sys\n\nsys.exit(3)\n")
    [finding] = find(path)
    assert (finding["rule"], finding["line"]) == ("load", 3)
    assert "SystemExit: 3" in str(finding["text"])


@pytest.mark.parametrize(
    ("code", "imported", "place"),
    [
        ("import kopf\nimport imported_one\n", "import kopf\n\n\ndef f(:\n", ("imported_one.py", 4)),
        ("import ast\n\nast.literal_eval('(')\n", "", ("importing.py", 3)),
        ("import kopf\n\nx = '\x00'\n", "", ("importing.py", 0)),
        ("import imported_one\n", "import kopf\n\nx = '\x00'\n", ("importing.py", 1)),
    ],
)
def test_failures_are_reported_where_they_are(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    imported: str,
    place: tuple[str, int],
) -> None:
    (tmp_path / "importing.py").write_text(code)
    (tmp_path / "imported_one.py").write_text(imported)
    monkeypatch.chdir(tmp_path)
    [finding] = find("importing.py")
    assert (finding["file"], finding["line"], finding["rule"]) == (*place, "load")


def test_what_needs_its_package_is_to_be_named_as_a_module(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package_of_handlers").mkdir()
    (tmp_path / "package_of_handlers" / "handlers.py").write_text("from . import others\n")
    (tmp_path / "package_of_handlers" / "others.py").write_text("import kopf\n")
    monkeypatch.chdir(tmp_path)
    [finding] = find("package_of_handlers/handlers.py")
    assert "-m package_of_handlers.handlers" in str(finding["cure"])
    assert find("-m", "package_of_handlers.handlers") == []


@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.stem)
def test_mistakes_are_found_with_their_lines_and_cures(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    lines = path.read_text().splitlines()
    expected = {(n, rule) for n, line in enumerate(lines, 1) for rule in re.findall(r"# expect: ([\w-]+)", line)}
    found = find(path.name, "--crds", CRD)
    assert {(item["line"], item["rule"]) for item in found} == expected
    assert all(item["file"] == path.name and item["text"] and item["cure"] for item in found)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_nothing_is_found_in_good_operators(path: pathlib.Path) -> None:
    assert check(path, "--crds", CRD).output == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_nothing_is_found_in_the_examples(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    for library in ("psycopg", "redis", "redis.asyncio", "redis.exceptions"):  # they are not installed
        monkeypatch.setitem(sys.modules, library, unittest.mock.MagicMock())
    crds = [item for item in ("crd.yaml", "../crd.yaml") if pathlib.Path(item).exists()]
    assert check(path.name, *(word for item in crds for word in ("--crds", item))).output == ""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_nothing_is_found_in_the_operators_of_the_pages(path: pathlib.Path) -> None:
    source = Source(path.name, "\n\n".join(get_blocks(path, "python")))
    assert [str(finding) for finding in check_code(source)] == []


def test_there_are_many_operators_of_each_sort() -> None:
    assert len(PLANTED) >= 20
    assert len(GOOD) + len(EXAMPLES) + len(PAGES) >= 20


def test_a_line_is_exempted_by_a_comment(tmp_path: pathlib.Path) -> None:
    code = (FOLDER / "planted" / "shell.py").read_text()
    path = tmp_path / "handlers.py"
    path.write_text(re.sub(r"# expect: ([\w-]+)", r"# kopf: ignore[timer-interval, \1]", code, count=1))
    assert [item["line"] for item in find(path)] == [11]
    path.write_text(code.replace("# expect: blocking-call", "# kopf: ignore[not-awaited]"))
    assert [item["line"] for item in find(path)] == [10, 11]


def test_files_that_are_imported_are_checked_too(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "operator_of_widgets").mkdir()
    (tmp_path / "operator_of_widgets" / "__init__.py").write_text("from operator_of_widgets import others\n")
    (tmp_path / "operator_of_widgets" / "others.py").write_text((FOLDER / "planted" / "shell.py").read_text())
    (tmp_path / "main_of_widgets.py").write_text("import operator_of_widgets\n")
    place = str(pathlib.Path("operator_of_widgets", "others.py"))
    for args in (["-m", "operator_of_widgets"], ["main_of_widgets.py"]):
        assert {(item["file"], item["rule"]) for item in find(*args)} == {(place, "blocking-call")}
        for name in [name for name in sys.modules if name.startswith("operator_of_widgets")]:
            del sys.modules[name]


def test_what_is_found_is_worded_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    output = check("planted/timer_once.py").output
    assert output.splitlines() == [
        "planted/timer_once.py:4: warning[timer-interval]: "
        "check_fn() runs only once for each object: there is no interval.",
        "    Add interval=... in seconds, or idle=...",
    ]


def test_empty_names_of_files_are_reported() -> None:  # e.g. of a variable of the shell that is not set
    [finding] = find("")
    assert (finding["rule"], finding["text"]) == ("load", "Cannot load '': there is no such file.")


def test_files_are_needed() -> None:
    assert check().exit_code == 2
    [finding] = find("nonexistent.py")
    assert "there is no such file" in str(finding["text"])


def test_the_decorators_are_as_before_afterwards() -> None:
    before = [kopf.on.create, kopf.timer, kopf.get_default_registry()]
    find(FOLDER / "planted" / "options.py")
    assert [kopf.on.create, kopf.timer, kopf.get_default_registry()] == before
    with pytest.raises(kopf.DeclarationError):
        kopf.timer("widgets", interval="10s")  # type: ignore[arg-type]


def test_the_page_tells_all_rules_and_what_they_are() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (error|warning) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == RULES


def test_the_page_tells_what_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    operator, exempted = get_blocks(PAGE, "python")
    (tmp_path / "handlers.py").write_text(operator)
    assert check("handlers.py").output == get_blocks(PAGE, "text")[0]
    (tmp_path / "handlers.py").write_text(f"import kopf\n\n\n{exempted}")
    assert check("handlers.py").output == ""


def test_missing_permissions_are_found(tmp_path: pathlib.Path) -> None:
    path, role = tmp_path / "handlers.py", FOLDER / "role.yaml"
    path.write_text("import kopf\n\n\n@kopf.on.create('widgets')\ndef create_fn(spec, **_):\n    pass\n")
    assert check(path, "--crds", CRD, "--roles", role).output == ""
    path.write_text(path.read_text().replace("spec", "patch"))
    [finding] = find(path, "--crds", CRD, "--roles", role)
    assert (finding["file"], finding["rule"]) == (str(role), "missing-permission")
    assert finding["text"] == "The operator needs to patch widgets/status.example.com, but no role permits it."
    assert "{'apiGroups': ['example.com'], 'resources': ['widgets/status'], 'verbs': ['patch']}" in str(finding["cure"])


def test_fields_of_models_are_known(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "handlers_of_models.py"
    path.write_text("""\
import dataclasses
from typing import Any
import kopf

@dataclasses.dataclass
class Spec:
    size: int

class Widget(kopf.CustomResource[Spec, dict[str, Any]], group="example.com", version="v1"):
    pass

@kopf.on.update(Widget, field="spec.sise")
def update_fn(spec, **_):
    print(spec["size"])
""")
    [finding] = find(path)
    assert (finding["line"], finding["rule"], finding["cure"]) == (12, "unknown-field", "Did you mean 'size'?")


def test_manifests_that_are_none_are_refused(tmp_path: pathlib.Path) -> None:
    for text in ("kind: CustomResourceDefinition\nspec: {}\n", "]", "---\n---\n- kind: List\n"):
        (tmp_path / "crd.yaml").write_text(text)
        result = check(GOOD[0], "--crds", tmp_path / "crd.yaml")
        assert (result.exit_code, "'--crds'" in result.output) == (2, True)
    assert "has a document that is no object: [{'kind': 'List'}]" in " ".join(result.output.split())
