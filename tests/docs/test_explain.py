"""The page of `kopf explain`: what it shows is what is printed, but for the times."""

from __future__ import annotations

import pathlib
import re
import shlex
import signal
import time

import pytest
import yaml
from click.testing import CliRunner

from kopf.cli import main
from kopf_cluster import LocalCluster
from tests.cli.api import request
from tests.cli.processes import Process
from tests.patience import PATIENCE
from tests.testing.kopfexamples import CRD

PAGE = (pathlib.Path(__file__).parent.parent.parent / "docs" / "explain.md").read_text()
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples/obj"
[CODE] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[OBJ] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ANSWERS = re.findall(r"^```console\n\$ kopf (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

_TIME = r"\b(now|(in )?\d+ (s|min|h)( \d+ (s|min))?( ago)?) \(\d\d:\d\d:\d\dZ\)"


def ask(command: str, cluster: LocalCluster, folder: pathlib.Path, url: str = "") -> str:
    """Run the command of the page there."""
    args = [folder.joinpath(arg).as_posix() if arg.endswith(".py") else arg for arg in shlex.split(command)]
    args = [url if arg.startswith("http://") else arg for arg in args]
    result = CliRunner().invoke(main, args, env={"KUBECONFIG": str(cluster.kubeconfig)}, catch_exceptions=False)
    return result.output.replace(str(folder), "/app")


def normalize(text: str) -> str:
    """Leave the times out; the page is as of long after the crash."""
    return re.sub(_TIME, "(TIME)", text).replace("is tried again", "should have been tried again")


def test_the_answers_of_the_page(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "handlers.py").write_text(CODE)
    (first, with_operator), (second, without_operator) = ANSWERS
    with LocalCluster() as cluster:
        cluster.apply(CRD)
        command = ["run", "-A", "--standalone", "--console=http://127.0.0.1:0", str(tmp_path / "handlers.py")]
        env = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}
        with Process(*command, cwd=tmp_path, log=tmp_path / "log", env=env) as process:
            url = process.wait_for(r"The console is served at (http://\S+)")[1]
            process.wait_for("authentication has finished")
            cluster.apply(yaml.safe_load(OBJ))
            process.wait_for("Handler 'create_fn' failed")
            deadline = time.monotonic() + PATIENCE
            while normalize(answer := ask(first, cluster, tmp_path, url)) != normalize(with_operator):
                assert time.monotonic() < deadline, answer
            wait_for_event(cluster)
            process.send_signal(signal.SIGKILL)
        labels = {"name": "obj", "labels": {"app": "web"}}
        cluster.apply({**yaml.safe_load(OBJ), "metadata": labels, "spec": {"size": "large"}})
        assert normalize(ask(second, cluster, tmp_path)) == normalize(without_operator)


def wait_for_event(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + PATIENCE
    while "create_fn" not in str(request(cluster, "GET", "/api/v1/namespaces/default/events")):
        assert time.monotonic() < deadline


def test_the_schema_is_described() -> None:
    from kopf._insight.explaining.explanation import Explanation

    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE[PAGE.index("## For programs") :], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == set(Explanation.__annotations__)
