"""Real exec plugins of kubeconfigs: small scripts that say what a test wants, and note down how they were called."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.patience import PATIENCE

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"

_SCRIPT = """\
#!{python} -IS
import json, os, pathlib, sys, time
folder = pathlib.Path({folder!r})
behaviour = json.loads((folder / "behaviour").read_text())
with open(folder / "calls", "a") as file:
    call = {{"args": sys.argv[1:], "env": dict(os.environ), "stdin": sys.stdin.read(), "pid": os.getpid()}}
    file.write(json.dumps(call) + "\\n")
sys.stderr.write(behaviour["stderr"])
sys.stderr.flush()
time.sleep(behaviour["delay"])
deadline = time.monotonic() + {patience}
while behaviour["wait"] and not (folder / behaviour["wait"]).exists():
    if time.monotonic() > deadline:
        sys.exit("nobody has told to go on")
    time.sleep(0.01)
sys.stdout.write(behaviour["stdout"])
sys.exit(behaviour["code"])
"""


class Plugin:
    """A script in the folder; ``path`` is where."""

    def __init__(self, folder: pathlib.Path, name: str = "plugin") -> None:
        self.path = folder / name
        self._folder = folder
        self.path.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder), patience=PATIENCE))
        self.path.chmod(0o755)

    def behave(self, stdout: str = "", *, stderr: str = "", code: int = 0, delay: float = 0, wait: str = "") -> None:
        """What to do when called; ``wait`` is the name of the file to wait for."""
        behaviour = {"stdout": stdout, "stderr": stderr, "code": code, "delay": delay, "wait": wait}
        (self._folder / "behaviour").write_text(json.dumps(behaviour))

    def bring(self, *, api_version: str = V1, **status: Any) -> None:
        """Say that these are the credentials."""
        self.behave(json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": status}))

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        path = self._folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def info(self) -> Mapping[str, Any]:
        """What the plugin was told of the cluster in the last call."""
        return json.loads(self.calls[-1]["env"]["KUBERNETES_EXEC_INFO"])  # type: ignore[no-any-return]

    def make_stanza(self, *, args: Sequence[object] = (), **fields: Any) -> dict[str, Any]:
        """Make what is in the kubeconfig."""
        return {
            "apiVersion": V1,
            "command": str(self.path),
            "args": list(args),
            "interactiveMode": "Never",
            **fields,
        }
