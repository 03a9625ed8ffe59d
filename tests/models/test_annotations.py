"""Annotations of handlers that cannot be resolved: mistakes are refused, what is for type checkers only is not."""

from __future__ import annotations

import functools
import pathlib
import sys
import types
from typing import Any

import pytest

import kopf

MODEL = """
from __future__ import annotations
import dataclasses
import functools
import typing
from typing import TYPE_CHECKING, Any
import kopf
if TYPE_CHECKING:
    import models
    import package.models as aliased
    from collections.abc import Mapping
    from models import Spec as Renamed
    Alias = Mapping[str, int]

@dataclasses.dataclass
class Port:
    number: int = 1

@dataclasses.dataclass
class Spec:
    field: int = 1
    ports: list[Port] = dataclasses.field(default_factory=list)

class Example(kopf.CustomResource[Spec, dict[str, typing.Any]], group="example.com", version="v1"):
    pass
"""

NAME = "handlers_of_tests"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NAME, types.ModuleType(NAME))


def load(folder: pathlib.Path, text: str) -> dict[str, Any]:
    """Execute the text as a file of an operator."""
    path = folder / "handlers.py"
    path.write_text(f"{MODEL}\n{text}\n")
    module = sys.modules[NAME] = types.ModuleType(NAME)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module.__dict__


def find(folder: pathlib.Path, annotation: str, name: str = "spec", field: str = "") -> set[str]:
    """Tell which arguments are decoded."""
    names = load(folder, f"def fn({name}: {annotation}, **_): ...")
    return {*names["Example"].find_decoders(names["fn"], tuple(field.split(".")) if field else ())}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("Spek", r"takes 'spec' as 'Spek', but name 'Spek' is not defined\. Did you mean 'Spec'\?"),
        ("Spek | None", r"takes 'spec' as 'Spek \| None', but name 'Spek' is not defined\. Did you mean 'Spec'\?"),
        ("'Spek'", r"name 'Spek' is not defined"),
        ("Qwertz", r"name 'Qwertz' is not defined\. Correct it, or leave it out\."),
        ("kopf.Spek", r"module 'kopf' has no attribute 'Spek'"),
        ("typing.Mapping[str, int, int]", r"Too many arguments"),
        ("'list[Spec'", r"takes 'spec' as \"'list\[Spec'\", but .*list\[Spec"),
    ],
)
def test_mistakes_are_refused(tmp_path: pathlib.Path, annotation: str, reason: str) -> None:
    with pytest.raises(
        kopf.DeclarationError, match=rf"handlers\.py:27: fn\(\) {reason}" if reason.startswith("takes") else reason
    ):
        find(tmp_path, annotation)


@pytest.mark.parametrize("name", ["spec", "status", "old", "new"])
def test_all_typed_arguments_are_looked_at(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(kopf.DeclarationError, match=rf"takes '{name}' as 'Exampel'.* Did you mean 'Example'\?"):
        find(tmp_path, "Exampel", name)


def test_other_arguments_are_not_looked_at(tmp_path: pathlib.Path) -> None:
    assert find(tmp_path, "Spec, logger: Loger, patch: kopf.Pach, meta: 'x['") == {"spec"}


@pytest.mark.parametrize(
    "annotation",
    [
        "Mapping[str, Any]",
        "Mapping",
        "Alias",
        "Alias | None",
        "models.Other",
        "models.Other | None",
        "aliased.Other[int]",
    ],
)
def test_names_for_type_checkers_are_accepted(tmp_path: pathlib.Path, annotation: str) -> None:
    """They are no mistakes if they are defined anywhere in the file, though they never exist."""
    assert find(tmp_path, annotation) == set()


def test_names_of_later_are_accepted(tmp_path: pathlib.Path) -> None:
    load(tmp_path, "def fn(spec: Later, **_): ...\nkopf.on.create(Example)(fn)\nclass Later: ...")


@pytest.mark.parametrize(
    "annotation", ["models.Spec", "aliased.Spec | None", "Renamed", "Mapping | Spec", "Spec | Alias"]
)
def test_models_are_known_by_the_names_for_type_checkers(tmp_path: pathlib.Path, annotation: str) -> None:
    assert find(tmp_path, annotation) == {"spec"}


def test_the_field_of_an_argument(tmp_path: pathlib.Path) -> None:
    assert find(tmp_path, "list[Port] | None", "old", field="spec.ports") == {"old"}
    with pytest.raises(kopf.DeclarationError, match=r"name 'Prt' is not defined\. Did you mean 'Port'\?"):
        find(tmp_path, "list[Prt]", "old", field="spec.ports")


def test_wrapped_functions_are_refused_with_their_own_place(tmp_path: pathlib.Path) -> None:
    text = "@functools.wraps(fn)\ndef wrapper(**kwargs): return fn(**kwargs)\nkopf.on.create(Example)(wrapper)"
    with pytest.raises(kopf.DeclarationError, match=r"handlers\.py:27: fn\(\) takes 'spec'"):
        load(tmp_path, f"def fn(spec: Spek, **_): ...\n{text}")


def test_functions_without_their_source_are_accepted(tmp_path: pathlib.Path) -> None:
    """Nobody knows then what is for type checkers only."""
    names = load(tmp_path, "def fn(spec: Spek, **_): ...")
    (tmp_path / "handlers.py").write_text("it is being edited")
    assert names["Example"].find_decoders(names["fn"], ()) == {}
    (tmp_path / "handlers.py").unlink()
    assert names["Example"].find_decoders(names["fn"], ()) == {}
    assert names["Example"].find_decoders(functools.partial(names["fn"]), ()) == {}
