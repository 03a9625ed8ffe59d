from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

import kopf
from kopf.cli import main
from kopf.cli.loading import LoadingError, list_sources, load

MANIFESTS = ["crd.yaml", "objects.yml", "obj.json"]


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """An empty current directory; whatever is loaded from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def get_loaded(name: str) -> object:
    return sys.modules[name].value


def test_files_are_loaded_in_order(folder: pathlib.Path) -> None:
    (folder / "a_one.py").write_text("value = 1")
    (folder / "a_two.py").write_text("import sys; value = sys.modules['a_one'].value + 1")
    load(["a_one.py", str(folder / "a_two.py")], [])
    assert get_loaded("a_two") == 2


def test_files_can_import_neighbours(folder: pathlib.Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a_neighbour.py").write_text("value = 123")
    (folder / "sub" / "a_file.py").write_text("from a_neighbour import value")
    load(["sub/a_file.py"], [])
    assert get_loaded("a_file") == 123


def test_modules_are_loaded_from_the_current_directory(folder: pathlib.Path) -> None:
    (folder / "a_package").mkdir()
    (folder / "a_package" / "__init__.py").write_text("")
    (folder / "a_package" / "a_module.py").write_text("value = 123")
    load([], ["a_package.a_module"])
    assert get_loaded("a_package.a_module") == 123


def test_repeated_files_are_loaded_once(folder: pathlib.Path) -> None:
    (folder / "a_file.py").write_text("import a_counter; a_counter.value += 1")
    (folder / "a_counter.py").write_text("value = 0")
    load(["a_file.py", "./a_file.py", str(folder / "a_file.py")], [])
    assert get_loaded("a_counter") == 1


def test_broken_links_are_not_suggested_instead_of_themselves(folder: pathlib.Path) -> None:
    (folder / "link.py").symlink_to("nowhere.py")
    with pytest.raises(LoadingError, match=r"^Cannot load 'link.py': there is no such file.$"):
        load(["link.py"], [])


def test_names_of_standard_modules_do_not_clash(folder: pathlib.Path) -> None:
    import operator

    (folder / "operator.py").write_text("value = 123")
    load(["operator.py"], [])
    assert sys.modules["operator"] is operator
    assert get_loaded("operator_2") == 123


def test_files_of_the_same_name_are_all_loaded(folder: pathlib.Path) -> None:
    for name in ("x", "y"):
        (folder / name).mkdir()
        (folder / name / "a_file.py").write_text(f"value = {name!r}")
    load(["x/a_file.py", "y/a_file.py"], [])
    assert [get_loaded("a_file"), get_loaded("a_file_2")] == ["x", "y"]


def test_classes_can_find_their_modules(folder: pathlib.Path) -> None:
    (folder / "a_file.py").write_text(
        "from __future__ import annotations\nimport dataclasses, typing, pickle\n"
        "@dataclasses.dataclass\nclass A:\n    x: typing.ClassVar[int] = 1\n    y: int = 2\n"
        "value = pickle.loads(pickle.dumps(A())).y"
    )
    load(["a_file.py"], [])
    assert get_loaded("a_file") == 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nonexistent.py", r"^Cannot load 'nonexistent.py': there is no such file.$"),
        ("x.py", r"no such file.$"),  # nothing is similar but the extension
        *((typo, r"no such file. Did you mean 'handlers.py'\?$") for typo in ("handler.py", "handlers", "handlres.py")),
        ("folder/handlers.py", "There is no directory 'folder' either"),
        (".", "'.': it is a directory. Name the files in it"),
        *((name, f"'{name}': it is not Python code. .* kopf dev --apply {name} …") for name in MANIFESTS),
    ],
)
def test_what_is_no_file_of_handlers(folder: pathlib.Path, path: str, message: str) -> None:
    (folder / "handlers.py").touch()
    for name in MANIFESTS:
        (folder / name).write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\n")
    with pytest.raises(LoadingError, match=message):
        load([path], [])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("a_x.b", "Cannot load the module 'a_x.b': there is no module 'a_x', neither"),
        ("a_file.py", "Name modules without the extension"),
        ("a_module", "NameError: name 'undefined' is not defined"),
    ],
)
def test_what_is_no_module_of_handlers(folder: pathlib.Path, module: str, message: str) -> None:
    (folder / "a_file.py").touch()
    (folder / "a_module.py").write_text("undefined")
    with pytest.raises(LoadingError, match=message):
        load([], [module])


@pytest.mark.parametrize("args", ["check handlers.py", "run handlers.py", "rbac -m handlers"])
def test_the_current_directory_is_gone(folder: pathlib.Path, args: str) -> None:
    folder.rmdir()
    result = CliRunner().invoke(main, args.split())
    assert (result.exit_code, result.output) == (
        1,
        "Error: The current directory does not exist anymore. Change to another one.\n",
    )


def test_syntax_error(folder: pathlib.Path) -> None:
    (folder / "a_file.py").write_text("import kopf\n\ndef fn(\n")
    with pytest.raises(LoadingError) as e:
        load(["a_file.py"], [])
    lines = e.value.message.splitlines()
    assert lines[0] == "Cannot load 'a_file.py': there is a syntax error."
    assert lines[1] == '  File "a_file.py", line 3'
    assert lines[2].strip() == "def fn("
    assert lines[-1].startswith("SyntaxError: ")


def test_changes_within_one_second_are_seen(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for value in (1, 2):
        (folder / "a_file.py").write_text(f"import sys\nsys.modules['sys'].value_of_a_file = {value}\n")
        os.utime(folder / "a_file.py", (1_000_000_000, 1_000_000_000))
        load(["a_file.py"], [])
        assert vars(sys).pop("value_of_a_file") == value
    assert not (folder / "__pycache__").exists()


def test_exception_on_import_is_traced_from_the_users_code(folder: pathlib.Path) -> None:
    (folder / "a_file.py").write_text("import a_broken\n")
    (folder / "a_broken.py").write_text("def fn():\n    return 1 / 0\n\nfn()\n")
    with pytest.raises(LoadingError) as e:
        load(["a_file.py"], [])
    message = e.value.message
    assert message.startswith("Cannot load 'a_file.py': its import failed.\nTraceback")
    assert message.endswith("ZeroDivisionError: division by zero")
    assert 'a_file.py", line 1' in message
    assert 'a_broken.py", line 4' in message
    assert 'a_broken.py", line 2' in message
    assert "loading.py" not in message
    assert "importlib" not in message


def test_failed_files_are_not_considered_loaded(folder: pathlib.Path) -> None:
    (folder / "a_file.py").write_text("1 / 0")
    with pytest.raises(LoadingError):
        load(["a_file.py"], [])
    assert "a_file" not in sys.modules


@pytest.mark.parametrize("code", ["raise SystemExit(5)", "raise KeyboardInterrupt"])
def test_exits_requested_by_the_code_are_passed_through(folder: pathlib.Path, code: str) -> None:
    (folder / "a_file.py").write_text(code)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        load(["a_file.py"], [])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("create()", "The handler's resource is not specified"),
        ("timer('pods', interval='10s')", "interval= must be a number of seconds (0 or more), got '10s' (str)."),
        ("create('pods', retrys=3)", "This kind of handlers has no such options: retrys. Did you mean 'retries'?"),
    ],
)
def test_misused_decorators_are_shown_with_no_frames_of_the_framework(
    folder: pathlib.Path, call: str, message: str
) -> None:
    (folder / "a_file.py").write_text(f"import kopf\n\n@kopf.on.{call}\ndef fn(**_):\n    pass\n")
    with pytest.raises(LoadingError) as e:
        load(["a_file.py"], [])
    assert e.value.message.startswith("Cannot load 'a_file.py'. ")
    assert e.value.message.splitlines()[-1].startswith(f"  a_file.py:3: {message}")
    assert "Traceback" not in e.value.message


def test_handlers_of_a_file_that_is_loaded_again_replace_the_former_ones(
    folder: pathlib.Path,
    registry: kopf.OperatorRegistry,
) -> None:
    for name in ("a_file.py", "b_file.py"):
        (folder / name).write_text(
            "import kopf\n"
            f"@kopf.on.startup(id={name!r})\n@kopf.on.create('pods')\n@kopf.on.validate('pods')\n"
            "def fn(**_):\n    pass\n"
        )
    for _ in range(3):
        load(["a_file.py", "b_file.py"], [])
    assert [handler.id for handler in registry.activities] == ["a_file.py", "b_file.py"]
    assert len(registry.resources) == 2
    assert len(registry.webhooks) == 2


def test_missing_module_inside_of_a_module_is_shown_where_it_is_imported(folder: pathlib.Path) -> None:
    (folder / "a_module.py").write_text("\nimport a_missing")
    with pytest.raises(LoadingError) as e:
        load([], ["a_module"])
    assert e.value.message.startswith("Cannot load 'a_module': its import failed.")
    assert 'a_module.py", line 2' in e.value.message
    assert "No module named 'a_missing'" in e.value.message
    assert "importlib" not in e.value.message


def test_sources_are_those_of_the_user(folder: pathlib.Path) -> None:
    (folder / "a_file.py").write_text("import a_neighbour, yaml, json")
    (folder / "a_neighbour.py").write_text("")
    load(["a_file.py"], [])
    names = {pathlib.Path(path).name for path in list_sources() if path.startswith(str(folder.resolve()))}
    assert names == {"a_file.py", "a_neighbour.py"}
    assert not any("site-packages" in path or path.endswith("json/__init__.py") for path in list_sources())
