"""The console under ``kopf dev``: it is there by itself, it can edit the cluster, it survives the reloads."""

from __future__ import annotations

import asyncio
import io
import json
import pathlib
import shutil
import socket
import stat
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from kopf.cli.dev.console_access import DevConsole, find_port, is_to_be_opened
from tests.cli.conftest import EXAMPLE, Starter
from tests.patience import PATIENCE

SCREEN = {"DISPLAY": ":0"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("wish", "env", "stream", "expected"),
    [
        (None, SCREEN, Terminal(), True),
        (True, SCREEN, Terminal(), True),
        (False, SCREEN, Terminal(), False),
        (True, SCREEN, io.StringIO(), False),
        (True, {**SCREEN, "CI": "true"}, Terminal(), False),
        (None, {}, Terminal(), False),
    ],
)
def test_when_browsers_are_opened(
    wish: bool | None,
    env: Mapping[str, str],
    stream: Any,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert is_to_be_opened(wish, env, stream) is expected


def test_ports_of_projects(tmp_path: pathlib.Path) -> None:
    assert find_port(tmp_path) == find_port(tmp_path)
    assert find_port(tmp_path) in range(20_000, 30_000)
    assert find_port(tmp_path) != find_port(tmp_path / "other")


def test_ports_of_projects_that_are_taken(tmp_path: pathlib.Path) -> None:
    """It is still none of those that the system gives to connections of others at any moment."""
    port = find_port(tmp_path)
    with socket.create_server(("127.0.0.1", port)):
        assert find_port(tmp_path) in {*range(20_000, 30_000)} - {port}


def ask(url: str, path: str, content: Any = None) -> Any:
    address, _, token = url.partition("/?token=")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(address + path, data, headers), timeout=PATIENCE) as response:
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
        config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {'y': '1e3'}}"
        ask(url, "/api/console/dev/apply", {"manifest": config})
        shown = ask(url, "/api/console/dev/get", {"resource": "configmaps.v1", "namespace": "default", "name": "c"})
        assert "  'y': '1e3'\n" in shown["manifest"]  # as kubectl reads it
        secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: swordfish}}"
        ask(url, "/api/console/dev/apply", {"manifest": secret})
        for resource, namespace, name in [
            ("secrets.v1", "default", "s"),
            ("secrets/s?x=.v1", "default", "obj"),
            ("secrets/s#.v1", "default", "obj"),
            ("kopfexamples.v1.kopf.dev", "default", "../../../../../../api/v1/namespaces/default/secrets/s"),
            ("pods.v1", "default/secrets/s?x=", "obj"),
            ("pods.v1/namespaces/default/secrets/s?x=", None, "obj"),
            ("pods.v1", "default", ".."),
            ("secrets%2fs.v1", "default", "obj"),
            ("namespaces.v1", None, "default/secrets/s"),
        ]:
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(url, "/api/console/dev/get", {"resource": resource, "namespace": namespace, "name": name})
            refused.value.close()
            assert refused.value.code == 400, resource
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


async def test_nobody_sees_the_token_in_the_arguments_of_the_browser(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are for all users of the machine; the page that leads the browser there, is for one."""
    opened: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("webbrowser.open", lambda url: loop.call_soon_threadsafe(opened.put_nowait, url))
    monkeypatch.setenv("KOPF_CONSOLE_TOKEN", "0123456789abcdef")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    console = DevConsole(tmp_path / "kubeconfig", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    opening = asyncio.create_task(console.open())
    async with server, asyncio.timeout(PATIENCE):
        url = await opened.get()
    assert "0123456789abcdef" not in url
    page = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
    assert f"url={console.url}" in page.read_text()
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    opening.cancel()
    await asyncio.wait([opening])
    assert not page.exists()
