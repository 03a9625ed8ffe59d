"""
Measure what the console takes: the CPU of an operator per change with it, and while its page is open.

    .venv/bin/python -m benchmarks.console [--objects 10000] [--changes 1000] [--rate 100] [--rounds 7]

Two operators run at the same time, each on a local cluster of its own, with the same changes: one without the console,
and one with it. So, whatever else the machine does, does the same to both. The open page is played by a client
that asks for the same: it reads the updates, gets the timeline of a selected object whenever that changes, and a
panel every 2 seconds. The CPU of the operator counts, with all of its threads.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.processes import Meter
from kopf_cluster import LocalCluster

MODES = ("on", "open")
_TIMEOUT = 600.0

_OPERATOR = """
import kopf

@kopf.on.create("widgets")
@kopf.on.update("widgets", field="spec.size")
async def change_fn(spec, patch, **_):
    patch.status["size"] = spec.get("size")
"""

_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.bench.example.com"},
    "spec": {
        "group": "bench.example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


class Page:
    """Asks for what the page asks for, until it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_closed = False
        self.updates = 0
        self.rows = 0
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._listen, self._poll)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ask for nothing more."""
        self._is_closed = True
        for thread in self._threads:
            thread.join()

    def _get(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", path)
        return connection.getresponse()

    def _listen(self) -> None:
        response = self._get("/api/console/updates")
        while not self._is_closed:
            line = response.readline()
            if line.startswith(b"data: [["):
                rows = json.loads(line[6:])
                self.updates += 1
                self.rows += len(rows)
                if any(row[0] == 1 for row in rows):
                    self._get("/api/console/timeline?id=1").read()

    def _poll(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)  # one for all, as browsers do it
        while not self._is_closed:
            connection.request("GET", "/api/console/panel?name=queues")
            connection.getresponse().read()
            time.sleep(2)


@contextlib.contextmanager
def running_operator(cluster: LocalCluster, folder: pathlib.Path, port: int | None) -> Iterator[Meter]:
    """Run the operator as users do, with the console if there is a port for it."""
    file = folder / "operator_file.py"
    file.write_text(_OPERATOR)
    args = [] if port is None else [f"--console=http://127.0.0.1:{port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "-A", "--standalone", "--quiet", *args, str(file)],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
    )
    try:
        yield Meter(process.pid)
    finally:
        process.terminate()
        process.wait()


def wait_until_handled(cluster: LocalCluster) -> None:
    """Wait until the operator has caught up with all objects."""
    deadline = time.monotonic() + _TIMEOUT
    while any((item.get("status") or {}).get("size") != item["spec"]["size"] for item in cluster.list("widgets")):
        if time.monotonic() > deadline:
            raise TimeoutError("The operator has not caught up.")
        time.sleep(0.5)


def compare(mode: str, clusters: Sequence[LocalCluster], options: argparse.Namespace, folder: pathlib.Path) -> float:
    """Give the CPU per change of the operator with the console, relative to that of the one without it."""
    port = find_port()
    plain, other = clusters
    with running_operator(plain, folder, None) as base, running_operator(other, folder, port) as meter:
        for cluster in clusters:
            change(cluster, options.objects - 1)  # it is the last one in the listing: all others are seen before it
        for cluster in clusters:
            wait_until_handled(cluster)
        page = Page(port) if mode == "open" else None
        time.sleep(1)
        before, began = (base.cpu, meter.cpu), time.monotonic()
        for number in range(options.changes):
            for cluster in clusters:
                change(cluster, number % options.objects)
            time.sleep(max(0.0, began + (number + 1) / options.rate - time.monotonic()))
        rate = options.changes / (time.monotonic() - began)
        for cluster in clusters:
            wait_until_handled(cluster)
        base_took, took = base.cpu - before[0], meter.cpu - before[1]
        notes = ""
        if page is not None:
            page.close()
            notes = f", {page.updates} updates with {page.rows} rows"
        print(
            f"{mode:5} {base_took / options.changes * 1e6:5.0f} -> {took / options.changes * 1e6:5.0f} us per change "
            f"at {rate:.0f}/s, {base.memory / 1024:.0f} -> {meter.memory / 1024:.0f} MiB{notes}",
            flush=True,
        )
    return float(took / base_took)


_sizes = itertools.count(1000)


def find_port() -> int:
    """Find a port for the console."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def create_widgets(cluster: LocalCluster, count: int) -> None:
    """Fill the cluster with the objects."""
    cluster.apply(_CRD)
    for number in range(count):
        cluster.create(make(number))


def change(cluster: LocalCluster, number: int) -> None:
    """Change the object in any way that is to be handled."""
    cluster.patch("widgets", f"widget-{number}", {"spec": {"size": next(_sizes)}})


def make(number: int) -> dict[str, Any]:
    """Make the manifest of an object."""
    metadata = {"name": f"widget-{number}"}
    return {"apiVersion": "bench.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": number}}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the console takes of the CPU.")
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=100.0, help="changes per second")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    results: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder, LocalCluster() as one, LocalCluster() as another:
        for cluster in (one, another):
            create_widgets(cluster, options.objects)
        for number in range(options.rounds):
            for mode in MODES:
                clusters = (one, another) if number % 2 else (another, one)
                results[mode].append(compare(mode, clusters, options, pathlib.Path(folder)))
    for mode in MODES:
        middle, least = statistics.median(results[mode]), min(results[mode])
        print(f"{mode:5} median {middle - 1:+.1%} of CPU, least {least - 1:+.1%}")


if __name__ == "__main__":
    main()
