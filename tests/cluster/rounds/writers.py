"""
Random writers, which remember for every object what must be seen of it, in its order.

Each writer has objects of its own, and does one thing after another, so that the order is known for each object,
but not between the objects of different writers.
"""

from __future__ import annotations

import asyncio
import collections
import os
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kopf.testing import LocalCluster

EVENTS = int(os.environ.get("KOPF_TEST_EVENTS", "2000"))  # at least some thousands, to be of any use
GROUP, PLURAL, KIND = "events.example.com", "counters", "Counter"
API_VERSION = f"{GROUP}/v1"
PATH = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}"
LAST = "zz-last"  # the object that tells that nobody writes any more
LANES = ("red", "green", "blue")
WRITERS = 8
OBJECTS = 25  # of each writer

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "kind": KIND},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "selectableFields": [{"jsonPath": ".spec.lane"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"n": {"type": "integer"}, "lane": {"type": "string"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


class Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Spec(msgspec.Struct):
    n: int = 0
    lane: str = ""


class Counter(msgspec.Struct):
    """What is of interest in an object, or in a status instead of it. The lane is in its labels and in its spec."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    code: int = 0


class Fact(NamedTuple):
    """One change of an object as its writer knows it. The version is not known for deletions."""

    type: str
    n: int
    lane: str
    version: int | None


class Writer:
    """Creates, updates, and deletes its objects at random."""

    def __init__(self, number: int, objects: int, seed: int) -> None:
        self.facts: dict[str, list[Fact]] = collections.defaultdict(list)
        self.count = 0
        self._rnd = random.Random(f"{seed}-{number}")
        self._owner = f"w{number}"
        self._names = [f"w{number}-{index}" for index in range(objects)]
        self._state: dict[str, Spec] = {}
        self._n = 0

    async def write(self, cluster: LocalCluster, count: int) -> None:
        """Make at least so many changes."""
        while self.count < count:
            self._change(cluster)
            await asyncio.sleep(0)  # let the watchers keep up

    def _change(self, cluster: LocalCluster) -> None:
        dice, name = self._rnd.random(), self._rnd.choice(self._names)
        if dice < 0.0005:
            for one in [*self._state]:
                self._delete(cluster, one)
        elif name not in self._state:
            spec = self._state[name] = Spec(self._next(), self._rnd.choice(LANES))
            self._remember("ADDED", name, spec, cluster.create(make_counter(name, spec, owner=self._owner)))
        elif dice < 0.1:
            self._delete(cluster, name)
        else:
            self._update(cluster, name)

    def _delete(self, cluster: LocalCluster, name: str) -> None:
        cluster.delete(PLURAL, name)
        self._remember("DELETED", name, self._state.pop(name), None)

    def _update(self, cluster: LocalCluster, name: str) -> None:
        lane = self._state[name].lane if self._rnd.random() < 0.8 else self._rnd.choice(LANES)
        spec = self._state[name] = Spec(self._next(), lane)
        merge_patch = {"metadata": {"labels": {"lane": lane}}, "spec": {"n": spec.n, "lane": lane}}
        json_patch = [
            {"op": "replace", "path": "/spec/n", "value": spec.n},
            {"op": "replace", "path": "/spec/lane", "value": lane},
            {"op": "replace", "path": "/metadata/labels/lane", "value": lane},
        ]
        patch: Any = merge_patch if self._rnd.random() < 0.5 else json_patch
        self._remember("MODIFIED", name, spec, cluster.patch(PLURAL, name, patch))

    def _remember(self, kind: str, name: str, spec: Spec, obj: Mapping[str, Any] | None) -> None:
        assert obj is None or obj["spec"]["n"] == spec.n
        version = None if obj is None else int(obj["metadata"]["resourceVersion"])
        self.facts[name].append(Fact(kind, spec.n, spec.lane, version))
        self.count += 1

    def _next(self) -> int:
        self._n += 1
        return self._n


def make_counter(name: str, spec: Spec, owner: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "labels": {"lane": spec.lane, "owner": owner}},
        "spec": {"n": spec.n, "lane": spec.lane},
    }
