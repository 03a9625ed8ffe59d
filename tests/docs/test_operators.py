"""The operators that the pages show are those of the examples, and they do what is said of them."""

from __future__ import annotations

import pathlib
import re
import time
from typing import Any

import pytest

from kopf.testing import SyncSimulation
from tests.docs.conftest import ROOT, get_blocks

EXAMPLES = ROOT / "examples"
MINIMAL = EXAMPLES / "01-minimal"
RETRIES = EXAMPLES / "02-retries"


def test_getting_started_shows_the_minimal_example() -> None:
    assert get_blocks(ROOT / "docs/getting-started.md", "yaml") == [
        (MINIMAL / "crd.yaml").read_text(),
        (MINIMAL / "obj.yaml").read_text(),
    ]
    assert get_blocks(ROOT / "docs/getting-started.md", "python")[0] == (MINIMAL / "handlers.py").read_text()


def test_what_getting_started_appends_is_one_operator_with_the_rest(tmp_path: pathlib.Path) -> None:
    code = "\n\n".join(get_blocks(ROOT / "docs/getting-started.md", "python"))
    functions = re.findall(r"^def (\w+)", code, re.MULTILINE)
    assert len(functions) == 4
    assert sorted(set(functions)) == sorted(functions)
    (tmp_path / "handlers.py").write_text(code)
    with SyncSimulation(tmp_path / "handlers.py", crds=MINIMAL / "crd.yaml") as simulation:
        simulation.apply(MINIMAL / "obj.yaml")
        simulation.advance(seconds=1)
        simulation.edit("kopfexample", "kopf-example-1", lambda obj: obj["spec"].update(duration="5m"))
        simulation.advance(seconds=10)
        simulation.delete("kopfexample", "kopf-example-1")
        simulation.expect("kopfexample", "kopf-example-1", absent=True)
        called = {call.id for call in simulation.journal.get_calls()}
    assert called == set(functions)


def test_the_readme_shows_the_example_of_retries() -> None:
    [code] = get_blocks(ROOT / "README.md", "python")
    docstring, source = (RETRIES / "handlers.py").read_text().split("\n\n", 1)
    assert docstring.endswith('"""')
    assert source == code


def test_the_operator_of_the_readme() -> None:
    with SyncSimulation(RETRIES / "handlers.py", crds=MINIMAL / "crd.yaml") as simulation:
        simulation.apply(MINIMAL / "obj.yaml")
        simulation.apply("{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: bad}, spec: {}}")
        simulation.settle()
        assert [call.outcome for call in simulation.journal.get_calls("create_fn", name="bad")] == ["failed"]
        obj = simulation.get("kopfexample", "kopf-example-1")
        assert obj["status"]["create_fn"] == {"message": "hello, kopf-example-1"}

        simulation.edit("kopfexample", "kopf-example-1", lambda obj: obj["spec"].update(duration="5m"))
        simulation.settle()
        assert "The duration is changed from 1m to 5m." in simulation.logs
        started = simulation.now
        simulation.delete("kopfexample", "kopf-example-1")
        simulation.expect("kopfexample", "kopf-example-1", absent=True, within=60)
        assert simulation.now - started >= 30
        assert len(simulation.journal.get_calls("delete_fn")) == 4


@pytest.mark.parametrize("write", [1, 2, 3])
def test_the_operator_of_the_walkthrough_survives_crashes(tmp_path: pathlib.Path, write: int) -> None:
    folder = EXAMPLES / "ephemeral-volume-claims"
    (tmp_path / "ephemeral.py").write_text("\n\n".join(get_blocks(ROOT / "docs/walkthrough.md", "python")))
    with SyncSimulation(tmp_path / "ephemeral.py", crds=folder / "crd.yaml") as simulation:
        simulation.crash_after(write=write, restart=True)
        simulation.apply(folder / "evc.yaml")
        path = "status.create_pvc.pvc-name"
        simulation.expect("ephemeralvolumeclaim", "my-claim", field=path, value="my-claim", within=600)
        assert simulation.get("persistentvolumeclaim", "my-claim")


class SlowProvider(dict[str, Any]):
    """It takes a minute to publish, and a moment to withdraw."""

    def __setitem__(self, name: str, address: Any) -> None:
        time.sleep(60)
        super().__setitem__(name, address)

    def pop(self, name: str, default: Any = None) -> Any:
        time.sleep(1)
        return super().pop(name, default)


def test_the_operator_of_the_tutorial_leaves_nothing_behind_though_its_work_takes_time() -> None:
    handlers, *_, remedy = get_blocks(ROOT / "docs/testing.md", "python")
    [crd] = get_blocks(ROOT / "docs/testing.md", "yaml")
    namespace: dict[str, Any] = {"DNS": {}}
    exec(handlers[: handlers.index(remedy.splitlines()[0])] + remedy, namespace)
    namespace["DNS"] = dns = SlowProvider()
    with SyncSimulation(crds=crd) as simulation:
        simulation.apply("{apiVersion: example.com/v1, kind: Record, metadata: {name: www}, spec: {address: 10.0.0.1}}")
        simulation.advance(seconds=3600 + 30)
        simulation.delete("record", "www")
        simulation.expect("record", "www", absent=True, within=600)
        assert [call.id for call in simulation.journal.get_calls()] == [
            "publish",
            "withdraw",
            "withdraw",
            "withdraw",
            "restore",
            "withdraw",
        ]
    assert dns == {}


def test_definitions_are_applied_before_their_objects() -> None:
    """With both in one command, kubectl does not know the kind of the objects yet: it fails."""
    pages = [*(ROOT / "docs").rglob("*.md"), *EXAMPLES.rglob("README.md"), ROOT / "README.md"]
    commands = [line for page in pages for line in re.findall(r"kubectl apply -f crds?\.yaml .*", page.read_text())]
    assert [command for command in commands if re.search(r"obj|default", command)] == []
