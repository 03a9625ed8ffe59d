"""The custom resource of the tests of simulations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf.testing import Simulation

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kopfexamples.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Namespaced",
        "names": {"plural": "kopfexamples", "singular": "kopfexample", "kind": "KopfExample", "shortNames": ["kex"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def make(name: str = "obj", **spec: Any) -> dict[str, Any]:
    """Make the manifest of an object."""
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": spec}


async def begin(simulation: Simulation, obj: Mapping[str, Any]) -> None:
    """Start the operator, and give it an object."""
    await simulation.restart()
    await simulation.apply(obj)
