"""
Measure what the console takes: the CPU of an operator per change without it, with it, and while its page is open.

    .venv/bin/python -m benchmarks.console [--objects 10000] [--changes 3000] [--rate 100] [--rounds 3]

The operators are run in turn, on the same local cluster, with the same changes. The open page is played by a client
that asks for the same: it reads the updates, gets the timeline of a selected object whenever that changes, and a
panel every 2 seconds. The CPU of the operator counts, with all of its threads.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
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
from collections.abc import Iterator
from typing import Any

from benchmarks.processes import Meter
from kopf_cluster import LocalCluster

MODES = ("off", "on", "open")
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
        while not self._is_closed:
            self._get("/api/console/panel?name=queues").read()
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


def measure(mode: str, options: argparse.Namespace, folder: pathlib.Path) -> float:
    """Give the CPU per change, in microseconds."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = None if mode == "off" else int(sock.getsockname()[1])
    with LocalCluster() as cluster:
        cluster.apply(_CRD)
        for number in range(options.objects):
            cluster.create(make(number))
        with running_operator(cluster, folder, port) as meter:
            wait_until_handled(cluster)
            page = Page(port) if mode == "open" and port is not None else None
            time.sleep(1)
            before, began = meter.cpu, time.monotonic()
            for number in range(options.changes):
                name = f"widget-{number % options.objects}"
                cluster.patch("widgets", name, {"spec": {"size": 1000 + number}})
                time.sleep(max(0.0, began + (number + 1) / options.rate - time.monotonic()))
            wait_until_handled(cluster)
            took = meter.cpu - before
            notes = ""
            if page is not None:
                page.close()
                notes = f", {page.updates} updates with {page.rows} rows"
            print(f"{mode:5} {took / options.changes * 1e6:7.0f} us per change, {meter.memory / 1024:5.0f} MiB{notes}")
    return float(took / options.changes * 1e6)


def make(number: int) -> dict[str, Any]:
    """Make the manifest of an object."""
    metadata = {"name": f"widget-{number}"}
    return {"apiVersion": "bench.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": number}}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the console takes of the CPU.")
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=3_000)
    parser.add_argument("--rate", type=float, default=100.0, help="changes per second")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for mode in MODES:
                results[mode].append(measure(mode, options, pathlib.Path(folder)))
    base = min(results["off"])
    for mode in MODES:
        least, middle = min(results[mode]), statistics.median(results[mode])
        print(f"{mode:5} least {least:.0f} us, median {middle:.0f} us per change: {least / base - 1:+.1%}")


if __name__ == "__main__":
    main()
