"""Tunnels by ngrok: with the real library, and a stand-in for the program, as the service is not for tests."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest
from pyngrok import process

import kopf
from kopf._admission.servers.certificate_sources import MissingDependencyError
from kopf._admission.servers.ngrok import WebhookNgrokTunnel
from tests.admission.servers.serving import Reviewer, send, serving


class ImpatientTunnel(WebhookNgrokTunnel):
    """The same tunnel, but those who test it have no time."""

    CHECK_INTERVAL = 0.05


def read(ngrok: pathlib.Path, name: str) -> Any:
    return json.loads((ngrok.parent / name).read_text())


def read_target(ngrok: pathlib.Path) -> str:
    """Read where the tunnel leads to; older versions of the library have another name for it."""
    tunnel = read(ngrok, "tunnel.json")
    target: str = tunnel["upstream"]["url"] if "upstream" in tunnel else tunnel["addr"]
    return target


async def test_the_tunnel_leads_to_a_local_server(ngrok: pathlib.Path) -> None:
    reviewer = Reviewer()
    async with serving(kopf.WebhookNgrokTunnel(port=0, path="/root", binary=ngrok), reviewer) as running:
        assert running.configs == [{"url": "https://random.ngrok.example/root"}]
        target = read_target(ngrok)
        assert target.startswith("http://localhost:")
        assert (await send({"url": f"{target}/root/handler1"}))[0] == 200
    assert reviewer.calls[0]["webhook"] == "handler1"
    assert not process.is_process_running(str(ngrok))


async def test_no_path(ngrok: pathlib.Path) -> None:
    async with serving(kopf.WebhookNgrokTunnel(port=0, binary=ngrok)) as running:
        assert running.configs == [{"url": "https://random.ngrok.example"}]


async def test_the_token_and_the_region(ngrok: pathlib.Path) -> None:
    tunnel = kopf.WebhookNgrokTunnel(addr="127.0.0.1", port=0, token="abc", region="eu", binary=str(ngrok))
    async with serving(tunnel):
        arguments = read(ngrok, "arguments.json")
        assert read_target(ngrok).startswith("http://127.0.0.1:")
    line = " ".join(arguments).replace("=", " ")
    assert "--authtoken abc" in line
    assert "--region eu" in line


async def test_it_exits_when_ngrok_exits(ngrok: pathlib.Path) -> None:
    async with serving(ImpatientTunnel(port=0, binary=ngrok)) as running:
        (ngrok.parent / "exit").touch()
        with pytest.raises(RuntimeError, match="ngrok has exited"):
            await running.wait_for_exit()


async def test_it_fails_when_ngrok_fails(ngrok: pathlib.Path) -> None:
    ngrok.write_text(f"#!{sys.executable}\nimport sys; print('lvl=eror err=\"it is wrong\"'); sys.exit(1)")
    with pytest.raises(Exception, match="it is wrong"):
        async with serving(kopf.WebhookNgrokTunnel(port=0, binary=ngrok)):
            pass


async def test_the_missing_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyngrok.conf", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kopf\[dev\]'"):
        async with serving(kopf.WebhookNgrokTunnel(port=0)):
            pass
