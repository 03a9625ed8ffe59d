"""What the examples are tried with."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Callable

import yaml

from kopf.testing import LocalCluster
from tests.cli.processes import ROOT
from tests.patience import PATIENCE

EXAMPLES = ROOT / "examples"


def wait_until(condition: Callable[[], object], explain: Callable[[], object] = lambda: "") -> None:
    """Wait until it is true; those who are asked for that can be not there yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def write_kubeconfig(cluster: LocalCluster, namespace: str, account: str, path: pathlib.Path) -> pathlib.Path:
    """Make a kubeconfig of the service account, as pods have it."""
    config = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())
    token = cluster.create_token(namespace, account)
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path.write_text(yaml.safe_dump(config))
    return path
