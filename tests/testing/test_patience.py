"""Limits of the real time in simulations are for what is stuck: machines may be slow, or asleep."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time

PATIENCE = 2.0

PROGRAM = """
import time
import kopf
from kopf.testing import SyncSimulation

registry = kopf.OperatorRegistry()
crd = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "kopfexamples.kopf.dev"},
    "spec": {
        "group": "kopf.dev", "scope": "Namespaced",
        "names": {"kind": "KopfExample", "plural": "kopfexamples", "singular": "kopfexample"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}

@kopf.on.create("kopfexamples", registry=registry)
def create_fn(**_):
    print("begun", flush=True)
    began = time.thread_time()
    while time.thread_time() - began < 0.05:
        pass

with SyncSimulation(registry=registry, crds=crd, patience=PATIENCE) as simulation:
    simulation.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "a"}})
    simulation.settle()
print("done", flush=True)
"""


def test_the_machine_was_asleep(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("PATIENCE", f"{PATIENCE}"))
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * PATIENCE)  # it is what is tested: the time that passes while nobody can work
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate()
    assert out.endswith("done\n"), err
