"""The local cluster in a process of its own, so that it does not compete with the operator for one interpreter."""

from __future__ import annotations

import asyncio
import signal
import sys

from kopf.testing import LocalCluster

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.bench.example.com"},
    "spec": {
        "group": "bench.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


async def serve(kubeconfig: str, *gates: str) -> None:
    """Serve until terminated, and tell when ready; with these features turned on."""
    stopped = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    async with LocalCluster(kubeconfig=kubeconfig, feature_gates=dict.fromkeys(gates, True)) as cluster:
        cluster.apply(DEFINITION)
        print("ready", flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
