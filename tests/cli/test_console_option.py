"""The console as it is asked for in the command line."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE, Starter

HANDLERS = str(EXAMPLE / "handlers.py")
TOKEN = "0123456789abcdef"


def test_it_is_served(start: Starter, cluster: LocalCluster) -> None:
    command = ["run", "--standalone", "--console=http://0.0.0.0:0", HANDLERS]
    with start(*command, kubeconfig=cluster.kubeconfig, KOPF_CONSOLE_TOKEN=TOKEN) as process:
        port = process.wait_for(r"The console is served at http://0.0.0.0:(\d+)/")[1]
        for headers, status in ({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 404):
            with pytest.raises(urllib.error.HTTPError) as e:
                urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/nothing", headers=headers))
            e.value.close()
            assert e.value.code == status
        assert process.stop() == 0
        assert TOKEN not in process.output


def test_it_is_never_open_to_everybody(start: Starter, cluster: LocalCluster) -> None:
    with start("run", "--standalone", HANDLERS, kubeconfig=cluster.kubeconfig, KOPF_RUN_CONSOLE="http://:0") as process:
        assert process.wait() == 1
        assert "would be open to everybody" in process.output
        assert "Traceback" not in process.output
