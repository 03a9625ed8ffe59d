"""
``kopf demo``: a real operator on a local cluster, step by step. Each step shows what it promises, or the show fails.

The operators are processes of ``kopf run``, with their logs on the stage. The user changes the shops, and observes them
in the cluster and outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from kopf._insight.endpoint.protection import TOKEN_VARIABLE
from kopf.cli.demo.stage import PromiseError, Stage
from kopf.cli.dev.child import KUBECONFIG_VARIABLE
from kopf.cli.dev.console_access import find_port

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster

FOLDER = pathlib.Path(__file__).parent
OPERATOR = FOLDER / "shop_operator.py"

_STOPPING_TIMEOUT = 10.0
_DAY = 86400
_METRIC = "kopf_handler_duration_seconds_count"
_NEXT = "kopf init my-operator && cd my-operator && kopf dev"


@click.command()
@click.option("--fast", "is_fast", is_flag=True, help="Leave no time to read: for tests.")
def demo(is_fast: bool) -> None:
    """
    Watch an operator at work on a local cluster, step by step, in half a minute.

    The operator survives a kill -9 between two writes, and a leap of a day; it explains itself, and a replica takes
    over. The command checks each step: the exit code is 0 only if every promise was kept. It leaves no traces.
    """
    try:
        import prometheus_client  # noqa: F401  # for the operator, as the next one
        import time_machine  # noqa: F401

        from kopf_cluster import LocalCluster
    except ImportError as e:
        raise click.ClickException(f"Packages are missing: {e}. Install them: pip install 'kopf[demo]'") from e
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))  # the operators end with the show
    started = time.monotonic()
    stage = Stage(is_fast=is_fast)
    click.echo("Starting a Kubernetes API in memory, and an operator: a process of its own ...")
    with LocalCluster(simulate=True) as cluster, tempfile.TemporaryDirectory(prefix="kopf-demo-") as folder:
        cluster.apply(FOLDER / "shop.yaml")
        show = Show(stage, cluster, pathlib.Path(folder))
        try:
            show.play()
            duration = time.monotonic() - started
            if not is_fast and sys.stdin.isatty():
                click.prompt("   Look at it in a browser. Enter ends the show", default="", show_default=False)
        except PromiseError as e:
            raise click.ClickException(str(e)) from e
        finally:
            show.stop()
    click.echo(f"\nAll promises were kept, in {duration:.0f} seconds. The operator: {OPERATOR}")
    stage.end("Begin your own, with its tests and manifests, on such a cluster:", command=make_next_command())


def make_next_command() -> str:
    """Make the command that begins an operator. Outside of the environment, as after `make demo`, activate it first."""
    activate = pathlib.Path(sys.executable).parent / "activate"
    if shutil.which("kopf") or not activate.exists():
        return _NEXT
    return f". {shlex.quote(str(activate))} && {_NEXT}"


class Show:
    """The steps, in their order. Each raises `PromiseError`."""

    def __init__(self, stage: Stage, cluster: LocalCluster, folder: pathlib.Path) -> None:
        receipts = folder / "receipts"
        self._stage = stage
        self._cluster = cluster
        self._shops = Shops(cluster, receipts)
        self._operators = contextlib.ExitStack()
        self._token = secrets.token_urlsafe(16)
        self._url = f"http://127.0.0.1:{find_port(folder)}"
        self._metrics_url = f"http://127.0.0.1:{find_port(receipts)}/metrics"
        self._env = {
            "KUBECONFIG": str(cluster.kubeconfig),
            KUBECONFIG_VARIABLE: str(cluster.kubeconfig),  # so that the console can move the time
            TOKEN_VARIABLE: self._token,
            "KOPF_DEMO_RECEIPTS": str(receipts),
        }

    def play(self) -> None:
        """Go through all steps; the operator of the last one goes on."""
        alone = ("--standalone", "--developing", f"--console={self._url}", f"--metrics={self._metrics_url}")
        operator = self._run(*alone)
        self._create()
        self._repair()
        self._crash(operator)
        operator = self._run(*alone)
        self._recover()
        self._leap()
        self._explain()
        self._measure()
        operator.stop()
        self._take_over()
        self._stage.begin_step("The console: objects, timelines, causes.")
        self._stage.show("", f"{self._url}/?token={self._token}")
        self._stage.pause()

    def stop(self) -> None:
        """End all operators."""
        self._operators.close()

    def _run(self, *options: str, name: str = "") -> OperatorProcess:
        return self._operators.enter_context(OperatorProcess(self._stage, self._env, *options, name=name))

    def _create(self) -> None:
        self._stage.begin_step("A user creates a Shop.")
        self._shops.apply("tea")
        self._stage.expect("Its domain is bought: $12.", lambda: self._shops.list_bought() == ["tea.example.com"])
        self._stage.expect("It has a Deployment and a Service.", lambda: self._shops.count_children("tea") == 2)

    def _repair(self) -> None:
        self._stage.begin_step("A user deletes the Service, and scales up.")
        before = self._shops.get_service("tea")
        self._cluster.delete("service", "tea")
        self._shops.apply("tea", replicas=3)
        self._stage.expect("The Service is back.", lambda: self._shops.get_service("tea") != before)
        self._stage.expect("The Deployment follows.", lambda: self._shops.count_replicas("tea") == 3)

    def _crash(self, operator: OperatorProcess) -> None:
        self._stage.begin_step("A new Shop, and kill -9 between two writes.")
        self._cluster.faults.inject(503, verb="patch", resource="services", latency=60)  # the second write waits
        self._shops.apply("books")
        self._stage.expect("The Deployment is written ...", lambda: self._cluster.get("deployment", "books"))
        operator.kill()
        self._stage.expect("kill -9: the operator is dead.", lambda: operator.is_over)
        self._stage.expect("... and there is no Service.", lambda: self._shops.count_children("books") == 1)
        self._cluster.faults.clear()

    def _recover(self) -> None:
        self._stage.begin_step("A new process continues.")
        bought = ["tea.example.com", "books.example.com"]
        self._stage.expect("The Service is there.", lambda: self._shops.count_children("books") == 2)
        self._stage.expect("The domain was not bought again.", lambda: self._shops.list_bought() == bought)

    def _leap(self) -> None:
        self._stage.begin_step("The clock leaps by a day, as in tests.")
        ask(f"{self._url}/api/console/dev/leap", self._token, {"seconds": _DAY})
        self._stage.expect("The daily backup of tea has run.", lambda: self._shops.get_backup("tea"))
        self._stage.expect("The daily backup of books has run.", lambda: self._shops.get_backup("books"))

    def _explain(self) -> None:
        self._stage.begin_step("Why did a handler run? And what is next?")
        args = ["explain", "shops", "books"]
        command = make_command(*args, f"--endpoint={self._url}")
        env = {**os.environ, **self._env}
        output = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
        self._stage.show(f"$ kopf {' '.join(args)}", output)
        handlers = ("buy_domain", "serve", "back_up")
        self._stage.expect("It explains each handler.", lambda: all(name in output for name in handlers))

    def _measure(self) -> None:
        self._stage.begin_step("How much work was that?")
        metrics = ask(self._metrics_url, self._token).splitlines()
        lines = [line for line in metrics if line.startswith(_METRIC) and 'handler="*"' not in line]
        self._stage.show(f"$ curl {self._metrics_url}", "\n".join(lines))
        self._stage.expect("Two backups.", lambda: any("back_up" in line and line.endswith(" 2.0") for line in lines))

    def _take_over(self) -> None:
        self._stage.begin_step("Two replicas, and kill -9 of the leader.")
        leader = self._run("--leader-election=shop", name="a")
        self._stage.expect("Replica a has the Lease.", lambda: self._shops.find_leader() == "a")
        self._run("--leader-election=shop", f"--console={self._url}", name="b")
        self._shops.apply("tea", replicas=4)
        self._stage.expect("It handles a change: 4 replicas.", lambda: self._shops.count_replicas("tea") == 4)
        self._stage.expect("Replica b stands by.", lambda: ask(self._url, self._token))
        leader.kill()
        self._shops.apply("tea", replicas=5)
        self._stage.expect("kill -9, and another change: 5 replicas.", lambda: leader.is_over)
        self._stage.expect("Replica b has the Lease.", lambda: self._shops.find_leader() == "b")
        self._stage.expect("It handles the change.", lambda: self._shops.count_replicas("tea") == 5)


def make_command(*args: str) -> list[str]:
    """Make the command line of this ``kopf``."""
    return [sys.executable, "-P", "-m", "kopf", *args]


class OperatorProcess:
    """One running operator; it is killed in the end, if it was not stopped before."""

    def __init__(self, stage: Stage, env: Mapping[str, str], *options: str, name: str = "") -> None:
        """``name`` is that of a replica; its log lines begin with it."""
        # The stage takes the colours off where they are not wanted.
        wanted = {"FORCE_COLOR": "1", "NO_COLOR": "", "PYTHONUNBUFFERED": "1", "POD_NAME": name}
        self._log, self._prefix = stage.log, f"{name} " if name else ""
        self._process = subprocess.Popen(
            make_command("run", *options, str(OPERATOR)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **env, **wanted},
            start_new_session=True,  # Ctrl+C ends the show, which ends the operators
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.put(f"{self._prefix}{line.rstrip()}")

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does."""
        self._finish()
        self._log.put(click.style(f"{self._prefix}killed", fg="red", bold=True))

    def stop(self) -> None:
        """Let the operator finish its work, as SIGTERM does."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOPPING_TIMEOUT)
        self._finish()

    def _finish(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> OperatorProcess:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._finish()


class Shops:
    """The shops. Each method raises `kopf_cluster.APIStatus` or :class:`KeyError` if something does not exist yet."""

    def __init__(self, cluster: LocalCluster, receipts: pathlib.Path) -> None:
        self._cluster = cluster
        self._receipts = receipts

    def apply(self, name: str, replicas: int = 1) -> None:
        """Create or change a shop."""
        spec = {"image": "example.com/shop:1", "replicas": replicas}
        self._cluster.apply({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec})

    def list_bought(self) -> list[str]:
        """List the domains, as often as they were bought. Raises :class:`OSError` if there are none."""
        return self._receipts.read_text().split()

    def count_children(self, name: str) -> int:
        """Count the Deployments and Services of the shop."""
        children = [*self._cluster.list("deployments"), *self._cluster.list("services")]
        return sum(child["metadata"]["name"] == name for child in children)

    def count_replicas(self, name: str) -> Any:
        """Give the number of replicas in the Deployment of the shop."""
        return self._cluster.get("deployment", name)["spec"]["replicas"]

    def get_service(self, name: str) -> Any:
        """Give the UID of the Service of the shop."""
        return self._cluster.get("service", name)["metadata"]["uid"]

    def get_backup(self, name: str) -> Any:
        """Give the day of the latest backup."""
        return self._cluster.get("shop", name)["status"]["backup"]

    def find_leader(self) -> str:
        """Give the name of the replica that has the Lease."""
        return str(self._cluster.get("lease", "shop")["spec"]["holderIdentity"]).partition("_")[0]


def ask(url: str, token: str, content: object = None) -> str:
    """Ask the operator at its console or its metrics, as a browser does. Raises :class:`OSError`."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    with opener.open(urllib.request.Request(url, data, headers), timeout=10) as response:
        return str(response.read().decode())
