"""
Walked objects: what is known of the object whose fields are changed, and how it is brought from one state to another.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._testing.exploring.walks import Manifest
from kopf._testing.merging import make_merge_patch
from kopf._testing.simulation import Simulation
from kopf._testing.simulation_errors import SimulationError

_DEFINITIONS = "customresourcedefinitions"


class WalkedObject:
    """The object as the cluster knows it, once it was there."""

    def __init__(self, manifest: Manifest) -> None:
        group, _, self._version = str(manifest["apiVersion"]).rpartition("/")
        self._kind = f"{manifest['kind']}.{self._version}.{group}"
        self._name = manifest["metadata"]["name"]
        self._namespace = manifest["metadata"].get("namespace", "default")
        self.schema: Mapping[str, Any] = {}
        self.label = ""
        """What it is called in final states."""

    async def live(self, simulation: Simulation, states: Sequence[Manifest]) -> None:
        """Create it in the first state, and let it become the others."""
        await self._learn(simulation)
        await simulation.apply(states[0])
        await simulation.settle()
        for before, after in itertools.pairwise(states):
            patch = make_merge_patch(before, after)
            await simulation.patch(self._kind, self._name, patch, namespace=self._namespace)
            await simulation.settle()

    async def _learn(self, simulation: Simulation) -> None:
        _, plural, is_namespaced = simulation.cluster.resolve_kind(self._kind)
        definition = await simulation.find(_DEFINITIONS, plural)
        if definition is None:
            raise SimulationError(f"There is no custom resource definition {plural}, so there is no schema to walk.")
        version = next(item for item in definition["spec"]["versions"] if item["name"] == self._version)
        self.schema = version["schema"]["openAPIV3Schema"]
        self.label = f"{plural} {self._namespace}/{self._name}" if is_namespaced else f"{plural} {self._name}"
