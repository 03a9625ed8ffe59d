"""The option for the metrics."""

from __future__ import annotations

import pathlib
import urllib.request

from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE, Starter
from tests.patience import PATIENCE
from tests.ports import find_free_port


def test_missing_library(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "lacking.py").write_text("import sys; sys.modules['prometheus_client'] = None")
    arguments = ["run", "-A", "--metrics=http://127.0.0.1:0/metrics", "lacking.py", str(EXAMPLE / "handlers.py")]
    with start(*arguments, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for(r"The operator cannot go on: The metrics need the library .* pip install 'kopf\[metrics\]")
        assert process.wait() == 1


def test_environment_variable(start: Starter, cluster: LocalCluster) -> None:
    url = f"http://127.0.0.1:{find_free_port()}/metrics"
    with start(
        "run", "-A", "--standalone", str(EXAMPLE / "handlers.py"), kubeconfig=cluster.kubeconfig, KOPF_RUN_METRICS=url
    ) as process:
        process.wait_for("Initial authentication has finished")
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:
            assert b"kopf_build_info" in response.read()
        assert process.stop() == 0
