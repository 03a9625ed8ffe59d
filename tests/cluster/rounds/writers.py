"""
Random writers, which remember for every object what must be seen of it, in its order.

Each writer has objects of its own, and does one thing after another, so that the order is known for each object,
but not between the objects of different writers.
"""

from __future__ import annotations

import collections
import json
import os
import random
from typing import Any, NamedTuple

import msgspec

from kopf.testing import LocalCluster
from tests.cluster.rounds.pipelining import JSON_PATCH, MERGE, Pipeline, pipelined

EVENTS = int(os.environ.get("KOPF_TEST_EVENTS", "8000"))  # at least some thousands, to be of any use
GROUP, PLURAL, KIND = "events.example.com", "counters", "Counter"
API_VERSION = f"{GROUP}/v1"
PATH = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}"
LAST = "zz-last"  # the object that tells that nobody writes any more
LANES = ("red", "green", "blue")
WRITERS = 8
OBJECTS = 25  # of each writer
BATCH = 50  # requests that are sent at once

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


_decoder = msgspec.json.Decoder(Counter)


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
        async with pipelined(cluster) as pipeline:
            while self.count < count:
                steps = [self._choose(pipeline) for _ in range(BATCH)]
                replies = await pipeline.send([request for request, _ in steps])
                for (_, changes), reply in zip(steps, replies, strict=True):
                    assert reply.status in (200, 201), reply
                    for name, fact in changes:
                        self._remember(name, fact, reply.body)

    def _remember(self, name: str, fact: Fact, body: bytes) -> None:
        if fact.type != "DELETED":
            seen = _decoder.decode(body)
            assert (seen.metadata.name, seen.spec.n) == (name, fact.n)
            fact = fact._replace(version=int(seen.metadata.resourceVersion))
        self.facts[name].append(fact)
        self.count += 1

    def _choose(self, pipeline: Pipeline) -> tuple[bytes, list[tuple[str, Fact]]]:
        """Give the next request, and the changes that it makes."""
        dice, name = self._rnd.random(), self._rnd.choice(self._names)
        if dice < 0.0005:
            gone = [(one, Fact("DELETED", spec.n, spec.lane, None)) for one, spec in self._state.items()]
            self._state.clear()
            return pipeline.encode("DELETE", f"{PATH}?labelSelector=owner={self._owner}"), gone
        if name not in self._state:
            return self._create(pipeline, name)
        if dice < 0.1:
            old = self._state.pop(name)
            return pipeline.encode("DELETE", f"{PATH}/{name}"), [(name, Fact("DELETED", old.n, old.lane, None))]
        return self._update(pipeline, name)

    def _create(self, pipeline: Pipeline, name: str) -> tuple[bytes, list[tuple[str, Fact]]]:
        spec = self._state[name] = Spec(self._next(), self._rnd.choice(LANES))
        body = json.dumps(make_counter(name, spec, owner=self._owner)).encode()
        return pipeline.encode("POST", PATH, body), [(name, Fact("ADDED", spec.n, spec.lane, None))]

    def _update(self, pipeline: Pipeline, name: str) -> tuple[bytes, list[tuple[str, Fact]]]:
        lane = self._state[name].lane if self._rnd.random() < 0.8 else self._rnd.choice(LANES)
        spec = self._state[name] = Spec(self._next(), lane)
        if self._rnd.random() < 0.5:
            patch: Any = {"metadata": {"labels": {"lane": lane}}, "spec": {"n": spec.n, "lane": lane}}
            content_type = MERGE
        else:
            patch = [
                {"op": "replace", "path": "/spec/n", "value": spec.n},
                {"op": "replace", "path": "/spec/lane", "value": lane},
                {"op": "replace", "path": "/metadata/labels/lane", "value": lane},
            ]
            content_type = JSON_PATCH
        request = pipeline.encode("PATCH", f"{PATH}/{name}", json.dumps(patch).encode(), content_type)
        return request, [(name, Fact("MODIFIED", spec.n, lane, None))]

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
