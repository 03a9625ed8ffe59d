"""The console under ``kopf dev``: it is there by itself, it can edit the cluster, it survives the reloads."""
from __future__ import annotations

import io
import json
import pathlib
import shutil
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from kopf.cli.dev_console import find_port, is_to_be_opened
from tests.cli.conftest import EXAMPLE, Starter

SCREEN = {"DISPLAY": ":0"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("wish", "env", "stream", "expected"), [
    (None, SCREEN, Terminal(), True),
    (True, SCREEN, Terminal(), True),
    (False, SCREEN, Terminal(), False),
    (True, SCREEN, io.StringIO(), False),
    (True, {**SCREEN, "CI": "true"}, Terminal(), False),
    (None, {}, Terminal(), False),
])
def test_when_browsers_are_opened(
        wish: bool | None, env: Mapping[str, str], stream: Any, expected: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert is_to_be_opened(wish, env, stream) is expected


def test_ports_of_projects(tmp_path: pathlib.Path) -> None:
    assert find_port(tmp_path) == find_port(tmp_path)
    assert find_port(tmp_path) in range(20_000, 30_000)
    assert find_port(tmp_path) != find_port(tmp_path / "other")


def ask(url: str, path: str, content: Any = None) -> Any:
    address, _, token = url.partition("/?token=")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(address + path, data, headers), timeout=10) as response:
        return json.loads(response.read())


def test_console_of_an_operator_in_development(start: Starter, tmp_path: pathlib.Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    with start("dev", "handlers.py", "--apply", "crd.yaml") as process:
        url = process.wait_for(r"The console: +(http://127\.0\.0\.1:\d+/\?token=\S+)$")[1]
        process.wait_for("The console is served at")
        manifest = (tmp_path / "obj.yaml").read_text()
        done = ask(url, "/api/console/dev/apply", {"manifest": manifest})
        assert done == {"done": ["kopfexamples/kopf-example-1 is created"]}
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        assert ask(url, "/api/console/timeline?id=1")
        with (tmp_path / "handlers.py").open("a") as file:
            file.write("\n")
        process.wait_for("The console is served at", times=2)
        assert ask(url, "/api/console/panel?name=errors") == []
        process.press_ctrl_c()
        assert process.wait() == 0
    assert "token=" not in process.output.replace(url, "")


def test_console_where_it_is_wanted(start: Starter, tmp_path: pathlib.Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    port = find_port(tmp_path / "wanted")
    args = ("handlers.py", "--apply", "crd.yaml", f"--console=http://127.0.0.1:{port}")
    with start("dev", *args, KOPF_CONSOLE_TOKEN="0123456789abcdef") as process:
        process.wait_for(rf"The console: +http://127\.0\.0\.1:{port}/\?token=0123456789abcdef$")
        process.wait_for(f"The console is served at http://127.0.0.1:{port}")
        process.press_ctrl_c()
        process.wait()
