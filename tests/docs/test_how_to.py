"""The how-to pages are short, and their operators do what the pages say."""

from __future__ import annotations

import base64
import pathlib
import re

import pytest

from kopf.testing import SyncSimulation
from tests.docs.conftest import ROOT, get_blocks

FOLDER = ROOT / "docs" / "how-to"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
EXAMPLE = "{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: NAME}, spec: {size: 3}}"
CRD = get_blocks(ROOT / "docs" / "getting-started.md", "yaml")[0]


def run_page(name: str, tmp_path: pathlib.Path, more: str = "") -> SyncSimulation:
    (tmp_path / "handlers.py").write_text(get_blocks(FOLDER / f"{name}.md", "python")[0] + more)
    return SyncSimulation(tmp_path / "handlers.py", crds=CRD)


def create(simulation: SyncSimulation, name: str = "obj") -> None:
    simulation.apply(EXAMPLE.replace("NAME", name))


def test_pages_are_short() -> None:
    texts = {page.name: page.read_text() for page in PAGES}
    assert [name for name, text in texts.items() if len(text.splitlines()) > 40 or "**Pitfall.**" not in text] == []


def test_all_pages_are_in_the_index() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text())
    assert sorted(linked) == [path.name for path in PAGES]


def test_children_are_kept(tmp_path: pathlib.Path) -> None:
    with run_page("child-objects", tmp_path) as simulation:
        create(simulation)
        simulation.expect("cm", "obj-config", field="data.size", value="3")
        simulation.patch("cm", "obj-config", {"data": {"size": "5"}})
        simulation.expect("cm", "obj-config", field="data.size", value="3", within=60)
        simulation.delete("cm", "obj-config")
        simulation.advance(seconds=5)
        simulation.expect("cm", "obj-config", field="data.size", value="3")


def test_children_are_followed(tmp_path: pathlib.Path) -> None:
    with run_page("child-changes", tmp_path) as simulation:
        create(simulation)
        simulation.settle()
        simulation.patch("cm", "obj-config", {"metadata": {"labels": {"app": "web"}}})
        simulation.expect("kopfexample", "obj", field="status.labels.app", value="web")
        assert [call.reason for call in simulation.journal.get_calls("follow_fn")] == ["create", "resume"]


def test_timers_are_spread(tmp_path: pathlib.Path) -> None:
    with run_page("spread-timers", tmp_path) as simulation:
        for n in range(5):
            create(simulation, f"obj{n}")
        simulation.advance(seconds=58)
        assert len({round(call.time) for call in simulation.journal.get_calls("check_fn")}) >= 4


def test_deletion_is_held(tmp_path: pathlib.Path) -> None:
    with run_page("hold-deletion", tmp_path) as simulation:
        create(simulation, "full")
        create(simulation, "empty")
        simulation.settle()
        simulation.delete("kopfexample", "full")
        simulation.delete("kopfexample", "empty")
        simulation.advance(hours=1)
        assert simulation.find("kopfexample", "full")
        assert not simulation.find("kopfexample", "empty")


def test_results_are_elsewhere(tmp_path: pathlib.Path) -> None:
    with run_page("results", tmp_path) as simulation:
        create(simulation)
        simulation.settle()
        simulation.patch("kopfexample", "obj", {"spec": {"size": 4}})
        simulation.settle()
        obj = simulation.get("kopfexample", "obj")
        assert obj["status"] == {"endpoint": "https://obj.example.com", "update": {"done": True}}
        assert obj["metadata"]["annotations"]["example.com/endpoint"] == "https://obj.example.com"


def test_delays_grow(tmp_path: pathlib.Path) -> None:
    with run_page("growing-delay", tmp_path) as simulation:
        create(simulation)
        simulation.advance(days=1)
        times = [call.time for call in simulation.journal.get_calls("create_fn")]
        assert len(times) == 10
        assert times[1] - times[0] == pytest.approx(5, rel=0.2)
        assert times[2] - times[1] == pytest.approx(15, rel=0.2)


def test_concurrency_is_limited(tmp_path: pathlib.Path) -> None:
    with run_page("limit-concurrency", tmp_path) as simulation:
        for n in range(20):
            create(simulation, f"obj{n}")
        simulation.advance(seconds=2.5)
        assert len(simulation.journal.get_calls("create_fn")) == 10  # two rounds of five have ended


def test_names_are_own(tmp_path: pathlib.Path) -> None:
    handler = "\n\n@kopf.on.create('kopfexamples')\n@kopf.on.delete('kopfexamples')\ndef fn(**_): ...\n"
    with run_page("two-operators", tmp_path, handler) as simulation:
        create(simulation)
        simulation.settle()
        meta = simulation.get("kopfexample", "obj")["metadata"]
        assert meta["finalizers"] == ["backups.example.com/finalizer"]
        assert {name.partition("/")[0] for name in meta["annotations"]} == {"backups.example.com"}


def test_items_are_on_their_own(tmp_path: pathlib.Path) -> None:
    with run_page("subhandlers", tmp_path) as simulation:
        simulation.apply(EXAMPLE.replace("NAME", "obj").replace("size: 3", "items: [one, broken, two]"))
        simulation.advance(minutes=5)
        outcomes = {
            item: [call.outcome for call in simulation.journal.get_calls(f"create_fn/{item}")]
            for item in ("one", "broken", "two")
        }
        assert outcomes == {"one": ["succeeded"], "broken": ["failed"], "two": ["succeeded"]}


def test_changes_are_ignored(tmp_path: pathlib.Path) -> None:
    with run_page("ignore-changes", tmp_path) as simulation:
        create(simulation)
        simulation.settle()
        simulation.patch("kopfexample", "obj", {"spec": {"replicas": 5}})
        simulation.settle()
        assert not simulation.journal.get_calls("update_fn")
        simulation.patch("kopfexample", "obj", {"spec": {"duration": "1m"}})
        simulation.settle()
        assert len(simulation.journal.get_calls("update_fn")) == 1
        assert not simulation.journal.get_calls("resize_fn/spec.size")
        simulation.patch("kopfexample", "obj", {"spec": {"size": 4}})
        simulation.settle()
        assert len(simulation.journal.get_calls("resize_fn/spec.size")) == 1


def test_used_objects_are_followed(tmp_path: pathlib.Path) -> None:
    def get_size() -> str:
        secret = simulation.find("secret", "obj-copy") or {}
        return base64.b64decode(secret.get("data", {}).get("size", "")).decode()

    with run_page("used-objects", tmp_path) as simulation:
        simulation.apply(EXAMPLE.replace("NAME", "obj").replace("size: 3", "config: mine"))
        simulation.settle()
        assert get_size() == ""
        simulation.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}, data: {size: '1'}}")
        simulation.settle()
        assert get_size() == "1"
        simulation.patch("configmap", "mine", {"data": {"size": "2"}})
        simulation.settle()
        assert get_size() == "2"
        simulation.delete("configmap", "mine")
        simulation.settle()
        assert not simulation.find("secret", "obj-copy")


def test_secrets_are_mirrored(tmp_path: pathlib.Path) -> None:
    text = "{apiVersion: v1, kind: Secret, metadata: {annotations: {example.com/mirror: x}, name: s}, data: {k: dg==}}"
    with run_page("mirror-secrets", tmp_path) as simulation:
        simulation.apply(text)
        simulation.settle()
        assert simulation.get("secret", "s", namespace="kube-system")["data"] == {"k": "dg=="}
        simulation.apply(text.replace("dg==", "eA=="))
        simulation.settle()
        assert simulation.get("secret", "s", namespace="kube-system")["data"] == {"k": "eA=="}
        simulation.patch("secret", "s", {"data": {"k": "dg=="}}, namespace="kube-system")
        simulation.apply("{apiVersion: v1, kind: Namespace, metadata: {name: new}}")
        simulation.advance(seconds=65)
        assert simulation.get("secret", "s", namespace="kube-system")["data"] == {"k": "eA=="}
        assert simulation.get("secret", "s", namespace="new")["data"] == {"k": "eA=="}


def test_passwords_are_generated_once(tmp_path: pathlib.Path) -> None:
    """Whatever happens to the Secret, to the operator, and to the stream of Secrets."""

    def get_passwords() -> list[str]:
        simulation.settle()
        return [simulation.get("secret", name)["data"]["password"] for name in ("obj", "other")]

    with run_page("generated-secrets", tmp_path) as simulation:
        simulation.faults.lag(0, up_to=3)
        create(simulation)
        create(simulation, "other")
        first, other = get_passwords()
        assert first != other
        simulation.restart()
        simulation.patch("kopfexample", "obj", {"spec": {"size": 4}})
        assert get_passwords() == [first, other]
        simulation.patch("secret", "obj", {"data": {"password": "eA=="}})
        assert get_passwords() == [first, other]
        simulation.delete("secret", "obj")
        assert get_passwords() == [first, other]


def test_few_events_are_posted(tmp_path: pathlib.Path) -> None:
    with run_page("fewer-events", tmp_path) as simulation:
        create(simulation)
        simulation.settle()
        simulation.advance(seconds=5)
        messages = [event["message"] for event in simulation.list("events", namespace="default")]
        assert messages == ["obj is large."]


def test_methods_are_handlers(tmp_path: pathlib.Path) -> None:
    with run_page("classes", tmp_path) as simulation:
        create(simulation)
        simulation.expect("kopfexample", "obj", field="status.zone", value="eu-1")
        simulation.delete("kopfexample", "obj")
        simulation.settle()
        assert len(simulation.journal.get_calls("delete")) == 1


def test_objects_are_resumed(tmp_path: pathlib.Path) -> None:
    with run_page("resume", tmp_path) as simulation:
        create(simulation)
        simulation.settle()
        simulation.restart()
        simulation.settle()
        assert [call.reason for call in simulation.journal.get_calls("connect_fn")] == ["create", "resume"]
