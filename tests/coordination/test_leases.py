from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest

from kopf._coordination.assignment import Assignment, Place, Report
from kopf._coordination.leases import Lease
from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.slots import ALL_SLOTS

NOW = datetime.datetime(2026, 11, 27, 10, 0, 0, 123, tzinfo=datetime.UTC)

LEASE = Lease(
    name="op-0",
    version="17",
    holder="web-1_abc",
    duration=15,
    transitions=3,
    acquired="2026-11-27T09:00:00.000000Z",
    report=Report(mode="shards", beat=5, held=frozenset({0, 1, 2, 9}), seen=16, is_leaving=True, former="web-0_x"),
    assignment=Assignment(
        generation=18,
        born=18,
        places={slot: Place("web-1_abc", 16) if slot < 100 else Place() for slot in sorted(ALL_SLOTS)},
    ),
)


def parse(patch: Any) -> Lease:
    return Lease.parse(KubeObject.from_json(codec.encode(patch)))


def test_leases_are_written_as_by_client_go_and_read_back() -> None:
    patch = LEASE.make_patch("op", NOW)
    assert patch["spec"] == {
        "holderIdentity": "web-1_abc",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 3,
        "acquireTime": "2026-11-27T09:00:00.000000Z",
        "renewTime": "2026-11-27T10:00:00.000123Z",
    }
    assert patch["metadata"]["labels"] == {"kopf.dev/coordination": "op"}
    assert parse(patch) == replace(LEASE, renewed="2026-11-27T10:00:00.000123Z")


def test_new_leases_are_acquired_now() -> None:
    patch = Lease(name="op", holder="web-1_abc").make_patch("op", NOW)
    assert patch["spec"]["acquireTime"] == patch["spec"]["renewTime"]
    assert "resourceVersion" not in patch["metadata"]


def test_leases_of_strangers_are_understood() -> None:
    lease = parse({"metadata": {"name": "op", "resourceVersion": "1"}, "spec": {"holderIdentity": "someone"}})
    assert lease == Lease(name="op", version="1", holder="someone", is_ours=False)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1", "[]", "{}", '{"held": 1}', '{"held": "0-900"}', '{"held": "none", "beat": "x"}', "[" * 5000],
)
def test_malformed_annotations_are_as_absent(text: str) -> None:
    annotations = {"kopf.dev/replica": text, "kopf.dev/assignment": text}
    lease = parse({"metadata": {"name": "op", "resourceVersion": "1", "annotations": annotations}})
    assert (lease.report, lease.assignment) == (Report(), None)


def test_renewals_are_not_changes() -> None:
    assert LEASE.is_same(replace(LEASE, version="18", renewed="later", report=replace(LEASE.report, beat=6)))
    assert not LEASE.is_same(replace(LEASE, holder=""))
    assert not LEASE.is_same(replace(LEASE, report=replace(LEASE.report, seen=17)))
