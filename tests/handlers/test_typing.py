"""
Types: what the checkers and the editors of the users know of the decorators and of the arguments.

The two files beside are for mypy, too, as everything here: in `make types`.
"""

from __future__ import annotations

import inspect
import json
import pathlib
import subprocess
import sys

import pytest

import kopf
from kopf._handlers import options
from tests.patience import LONG_PATIENCE

HERE = pathlib.Path(__file__).parent


@pytest.mark.timeout(2 * LONG_PATIENCE)
def test_pyright_accepts_what_is_right_and_finds_the_mistakes(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("basedpyright", reason="it is not for this platform")
    config = {
        "include": [str(HERE / "typed_handlers.py"), str(HERE / "mistaken_handlers.py")],
        "extraPaths": [str(HERE.parent.parent / "src")],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
        "reportUnknownMemberType": False,  # it is said of what does not exist, too
        "reportUnusedExpression": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", "-p"]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=LONG_PATIENCE)
    report = json.loads(run.stdout)
    problems = [
        f"{item['file']}:{item['range']['start']['line'] + 1}: {item['message']}"
        for item in report["generalDiagnostics"]
    ]
    assert problems == []
    assert report["summary"]["filesAnalyzed"] == 2


@pytest.mark.parametrize("name", [name for name in kopf.on.__all__ if name != "convert"])
def test_all_options_are_shown(name: str) -> None:
    decorator = getattr(kopf.on, name)
    signature = inspect.signature(decorator)
    keywords = [item for item in signature.parameters.values() if item.kind is item.KEYWORD_ONLY]
    text = inspect.getdoc(decorator) or ""
    assert len(keywords) >= 7
    assert not any(isinstance(item.annotation, str) for item in keywords)
    assert [item.name for item in keywords if item.default is not None] == (["field"] if name == "field" else [])
    assert all(text.count(f"- ``{item.name}``: ") == 1 for item in keywords)
    assert signature.parameters["retries"].annotation == int | None if "retries" in signature.parameters else True
    assert signature.replace(return_annotation=None).parameters == signature.parameters


def test_signatures_of_decorators_are_read_as_those_of_functions() -> None:
    assert str(inspect.signature(kopf.on.startup)).startswith("(*, id: str | None = None, param: ")
    assert str(inspect.signature(kopf.on.create)).startswith("(*name: 'Name', id: str | None = None, param: ")
    assert str(inspect.signature(kopf.register)).startswith("(fn: 'Fn', *, id: str | None = None, param: ")
    assert inspect.signature(kopf.on.create).bind("pods", id="x").arguments == {"name": ("pods",), "id": "x"}
    with pytest.raises(TypeError, match="unexpected"):
        inspect.signature(kopf.on.create).bind("pods", nonexistent=1)


def test_all_texts_of_options_are_used() -> None:
    kinds = [item for name, item in vars(options).items() if name.endswith("Options") and isinstance(item, type)]
    assert options._TEXTS.keys() == {name for kind in kinds for name in kind.__annotations__}
