"""The definitions of custom resources by the models in the files of operators."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cli.conftest import Starter

MODELS = """
import dataclasses
import kopf

@dataclasses.dataclass
class Spec:
    field: int = 1
    other: str = ""

@dataclasses.dataclass
class Status:
    phase: str | None = None

class Example(kopf.CustomResource[Spec, Status], group="example.com", version="v1"):
    '''An example.'''

class Old(kopf.CustomResource[Spec, Status], group="example.com", version="v1beta1", kind="Example", storage=False):
    pass
"""

HANDLERS = """
import kopf
from models import Example, Spec

@kopf.on.create(Example)
@kopf.on.update(Example)
async def create_fn(spec: Spec, logger, **_):
    logger.info(f"The field is {spec.field!r}.")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    return tmp_path


def run(start: Starter, *args: str, code: int = 0) -> str:
    with start("crd", *args) as process:
        assert process.wait() == code
        return process.output


def test_the_definitions_are_accepted_and_always_the_same(start: Starter) -> None:
    text = run(start, "handlers.py")
    assert run(start, "handlers.py") == text
    [definition] = yaml.safe_load_all(text)
    assert [version["name"] for version in definition["spec"]["versions"]] == ["v1", "v1beta1"]
    assert [version["storage"] for version in definition["spec"]["versions"]] == [True, False]
    with LocalCluster(bare=True) as cluster:
        cluster.apply(definition)


@pytest.mark.parametrize(
    "field", ["y: int = 1", "n: str = 'y'", "field: str = '1e3'", "field: str = '0o7'", "field: tuple[int, ...] = ()"]
)
def test_the_definitions_are_read_by_kubectl_as_they_are(
    start: Starter, folder: pathlib.Path, kubectl: str, field: str
) -> None:
    (folder / "models.py").write_text(MODELS.replace("field: int = 1", field))
    (folder / "crd.yaml").write_text(run(start, "handlers.py"))
    assert run(start, "handlers.py", "--check", "crd.yaml") == ""
    with LocalCluster() as cluster:
        apply = [kubectl, f"--kubeconfig={cluster.kubeconfig}", "apply", "-f", str(folder / "crd.yaml")]
        subprocess.run(apply, check=True)
        definition = cluster.get("customresourcedefinitions", "examples.example.com")
        [expected] = yaml.safe_load_all((folder / "crd.yaml").read_text())
        for version, wanted in zip(definition["spec"]["versions"], expected["spec"]["versions"], strict=True):
            schemas = version["schema"], wanted["schema"]
            found, made = (schema["openAPIV3Schema"]["properties"]["spec"]["properties"] for schema in schemas)
            assert found == made


def test_files_are_checked(start: Starter, folder: pathlib.Path) -> None:
    (folder / "crd.yaml").write_text("# Ours.\n" + run(start, "handlers.py"))
    assert run(start, "handlers.py", "--check", "crd.yaml") == ""
    # Also of another size, or it is not compiled anew.
    (folder / "models.py").write_text(MODELS.replace("field: int = 1", "field: int = 20"))
    output = run(start, "handlers.py", "--check", "crd.yaml", code=1)
    assert "examples.example.com/v1: spec.field: default is 20, not 1." in output
    assert "crd.yaml is not up to date. To update it: kopf crd handlers.py > crd.yaml" in output


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("field: int = 1", "field: int = 20", "BREAKING  examples.example.com/v1: spec.field: default is 20, not 1."),
        ("field: int = 1", "more: int = 1", "BREAKING  examples.example.com/v1: spec.field: the field is removed."),
        (
            "field: int = 1",
            "field: str = '1'",
            "BREAKING  examples.example.com/v1: spec.field: the type is string, not integer.",
        ),
        (
            "field: int = 1",
            "field: int | str = 1",
            "harmless  examples.example.com/v1: spec.field: the type is int-or-string, not integer.",
        ),
        (
            "    other:",
            "    more: int = 5\n    other:",
            "harmless  examples.example.com/v1: spec.more: the field is added.",
        ),
        (
            "    field:",
            "    more: int\n    field:",
            "BREAKING  examples.example.com/v1: spec.more: the field is added, and is required.",
        ),
        (
            "field: int = 1",
            "field: int | None = 1",
            "harmless  examples.example.com/v1: spec.field: nullable is True, not None.",
        ),
        ("An example.", "The example.", "harmless  examples.example.com/v1: the object: the description is changed."),
        ('version="v1beta1"', 'version="v1alpha1"', "BREAKING  examples.example.com/v1beta1: the version is removed."),
    ],
)
def test_breaking_changes_are_told_from_harmless_ones(
    start: Starter,
    folder: pathlib.Path,
    old: str,
    new: str,
    change: str,
) -> None:
    (folder / "crd.yaml").write_text(run(start, "handlers.py"))
    (folder / "models.py").write_text(MODELS.replace(old, new))
    output = run(start, "handlers.py", "--diff", "crd.yaml", code=int("BREAKING" in change))
    assert change in output.splitlines()


MISTAKEN = HANDLERS.replace("spec: Spec", "spec: Spek")


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        (
            "models.py",
            MODELS.replace("field: int", "field: complex"),
            "models.py:5: Spec.field: complex has no schema; use float.",
        ),
        (
            "models.py",
            MODELS.replace('other: str = ""', "other: 'Spec | None' = None"),
            "models.py:5: Spec.other: Spec contains itself, but schemas are finite; use dict[str, Any] here.",
        ),
        (
            "models.py",
            MODELS.replace("field: int = 1", "field: 'kopf.Quantiy' = '1'"),
            "models.py:5: Spec: module 'kopf' has no attribute 'Quantiy'",
        ),
        (
            "models.py",
            MODELS.replace("field: int = 1", "field: 'Itn' = 1"),
            "models.py:5: Spec: name 'Itn' is not defined; declare it before",
        ),
        (
            "models.py",
            MODELS.replace("storage=False", "storage=True"),
            "models.py:17: Example: exactly one version must have storage=True",
        ),
        (
            "models.py",
            MODELS.replace('version="v1beta1"', 'version="v1"'),
            "models.py:17: Example is declared twice as example.com/v1.",
        ),
        (
            "models.py",
            MODELS.replace("storage=False", "short_names=['x']"),
            "models.py:17: Example of v1beta1 and Example of v1 are versions of one kind",
        ),
        (
            "models.py",
            MODELS.replace("phase: str | None = None", "phase: str"),
            "models.py:10: Status: a new object has no status, so its fields need default values: phase.",
        ),
        (
            "models.py",
            MODELS.replace('group="example.com", version="v1"):', 'group="example", version="v1"):'),
            "models.py:14: Example: the group must be a domain with a dot, e.g. 'example.com', not 'example'.",
        ),
        (
            "models.py",
            MODELS.replace('version="v1"):', 'version="v1", columns={"F": ".spec.feild"}):'),
            "Example: there is no field 'feild' for the path '.spec.feild'. Did you mean 'field'?",
        ),
        (
            "handlers.py",
            f"from __future__ import annotations\n{MISTAKEN}",
            "handlers.py:6: create_fn() takes 'spec' as 'Spek', but name 'Spek' is not defined. Did you mean 'Spec'?",
        ),
    ],
)
def test_what_cannot_be_is_said_with_its_place(
    start: Starter,
    folder: pathlib.Path,
    path: str,
    text: str,
    problem: str,
) -> None:
    (folder / path).write_text(text)
    assert problem in run(start, "handlers.py", code=1)
    with start("run", "handlers.py", log="run.log") as process:
        assert process.wait() == 1
        assert problem in process.output


def test_models_are_missing(start: Starter, folder: pathlib.Path) -> None:
    (folder / "handlers.py").write_text("")
    assert "There are no models in handlers.py. Declare them" in run(start, "handlers.py", code=1)


def test_models_are_defined_in_the_local_cluster_and_again_on_reload(
    start: Starter,
    folder: pathlib.Path,
    kubectl: str,
) -> None:
    obj = {"apiVersion": "example.com/v1", "kind": "Example", "metadata": {"name": "one"}, "spec": {"field": 5}}
    (folder / "obj.yaml").write_text(yaml.safe_dump(obj))
    with start("dev", "handlers.py", "--apply", "obj.yaml") as process:
        process.wait_for("Applied the models: CustomResourceDefinition examples.example.com$")
        process.wait_for("The field is 5.$")
        kubeconfig = process.wait_for("export KUBECONFIG=(.+)$")[1]
        shutil.copy(folder / "models.py", folder / "draft")
        (folder / "draft").write_text(MODELS.replace("field: int", "field: int | str"))
        (folder / "draft").replace(folder / "models.py")
        process.wait_for("Reloading the operator.")
        process.wait_for("Applied the models: CustomResourceDefinition examples.example.com$", times=2)
        patch = [kubectl, f"--kubeconfig={kubeconfig}", "patch", "example", "one", "--type=merge", "-p"]
        subprocess.run([*patch, '{"spec": {"field": "text"}}'], check=True, capture_output=True)
        process.wait_for("'text'")
        assert "No such resource" not in process.output
        assert process.output.count("Did you mean") == 0


def test_files_are_read_as_utf8_in_any_locale(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text("title: \u2713", encoding="utf-8")
    code = "import pathlib, sys; from kopf.cli.crd import read_manifests; read_manifests(pathlib.Path(sys.argv[1]), '')"
    env = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    assert subprocess.run([sys.executable, "-c", code, str(path)], env=env, check=False).returncode == 0
