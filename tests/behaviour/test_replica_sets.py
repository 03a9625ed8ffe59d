"""ReplicaSets of Deployments carry the annotations of the Deployments, which say nothing of the ReplicaSets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, LAST_HANDLED, Objects, get_annotations, watch
from tests.behaviour.replica_sets import COPIED, OWN, create_replica_set, is_handled, make_spec
from tests.behaviour.running import Calls, Operator


@pytest.fixture
async def replica_sets(api: API) -> AsyncIterator[Objects]:
    async with watch(api, "ReplicaSet", "replicasets", group="apps") as objects:
        yield objects


async def test_they_are_handled_on_their_own(operator: Operator, replica_sets: Objects, calls: Calls) -> None:
    """Restarts know them."""

    for id in ("first", "second"):

        @kopf.on.create("replicasets", id=id, param=id)
        @kopf.on.update("replicasets", id=id, param=id)
        def fn(param: str, reason: str, retry: int, **_: Any) -> None:
            calls.append((param, str(reason), retry))

    await operator.start(watching=("replicasets",))
    await create_replica_set(replica_sets)
    obj = await replica_sets.wait(is_handled)
    assert calls == [("first", "create", 0), ("second", "create", 0)]
    assert {key: get_annotations(obj)[key] for key in COPIED} == COPIED

    await replica_sets.merge({"spec": {"replicas": 1}})
    await replica_sets.wait(lambda obj: obj["spec"]["replicas"] == 1 and is_handled(obj))
    assert [*calls][2:] == [("first", "update", 0), ("second", "update", 0)]

    await operator.restart(watching=("replicasets",))
    await create_replica_set(replica_sets, "another")
    await replica_sets.wait(is_handled, "another")
    assert [*calls][4:] == [("first", "create", 0), ("second", "create", 0)]


async def test_those_without_deployments_are_as_all_others(operator: Operator, replica_sets: Objects) -> None:
    kopf.on.create("replicasets")(lambda **_: None)
    await operator.start(watching=("replicasets",))
    await replica_sets.create(spec=make_spec())
    obj = await replica_sets.wait(lambda obj: LAST_HANDLED in get_annotations(obj))
    assert OWN not in get_annotations(obj)
