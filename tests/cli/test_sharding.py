"""``kopf shards`` and ``kopf explain``: what the Leases of replicas tell, with no operator asked."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kopf._coordination.assignment import Assignment, Place, Report
from kopf._coordination.leases import Lease
from kopf._values.slots import ALL_SLOTS, get_slot
from kopf.cli import main
from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE

Kopf = Callable[..., Result]

OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj"}}


@pytest.fixture
def kopf_command(cluster: LocalCluster) -> Kopf:
    def run(*args: str, **env: str) -> Result:
        env = {"KUBECONFIG": str(cluster.kubeconfig), **env}
        return CliRunner().invoke(main, args, env=env, catch_exceptions=False)

    return run


def put(cluster: LocalCluster, group: str, *leases: Lease, age: float = 3, namespace: str = "default") -> None:
    """Put the Leases there, as if replicas had renewed them some seconds ago."""
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    for lease in leases:
        obj: dict[str, Any] = {**lease.make_patch(group, now)}
        cluster.apply({**obj, "metadata": {**obj["metadata"], "namespace": namespace}})


def share(*owners: Place) -> Assignment:
    """Give the slots to the owners in turn."""
    places = {slot: owners[slot % len(owners)] for slot in sorted(ALL_SLOTS)}
    return Assignment(generation=42, places=places)


SHARDS = (
    Lease(
        name="web",
        holder="web-0_aa",
        duration=15,
        report=Report(mode="shards"),
        assignment=share(Place("web-0_aa", 5), Place("web-1_bb", 7, "web-0_aa", 42), Place("web-1_bb", 7), Place()),
    ),
    Lease(name="web-0", holder="web-0_aa", duration=15, report=Report(mode="shards", version="1.2")),
    Lease(name="web-1", holder="web-1_bb", duration=15, report=Report(mode="shards", version="1.1", is_leaving=True)),
    Lease(name="web-2", holder="", report=Report(mode="shards", former="web-2_cc")),
)
LEADER = Lease(
    name="db", holder="db-1_zz", duration=15, report=Report(mode="leader"), assignment=share(Place("db-1_zz", 3))
)


def test_shards(cluster: LocalCluster, kopf_command: Kopf) -> None:
    put(cluster, "web", *SHARDS)
    lines = kopf_command("shards", "web").output.splitlines()
    assert lines[0] == "web in default: shards, generation 42"
    assert lines[1].split() == ["REPLICA", "ROLE", "SHARE", "MOVING", "SINCE", "RENEWED", "VERSION", "SLOTS"]
    [first, second] = [line.split("  ") for line in lines[2:4]]
    assert [part.strip() for part in first if part][:4] == ["web-0", "coordinator", "25.0%", "+64"]
    assert [part.strip() for part in second if part][:4] == ["web-1", "member, exits", "50.0%", "-64"]
    assert "s ago" in lines[2]
    assert "(late)" not in lines[2]
    assert lines[2].endswith("1.2      0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40…")
    assert lines[4].startswith("without an owner: 64 of 256 slots (3, 7, ")
    assert len(lines) == 5


def test_leader(cluster: LocalCluster, kopf_command: Kopf) -> None:
    put(cluster, "db", LEADER, age=60)
    lines = kopf_command("shards", "db").output.splitlines()
    assert lines[0] == "db in default: leader, generation 42"
    assert lines[2].split()[:4] == ["db-1", "leader", "100.0%", "-"]
    assert "(late)" in lines[2]
    assert len(lines) == 3


def test_all_operators_of_a_namespace_for_programs(cluster: LocalCluster, kopf_command: Kopf) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
    put(cluster, "web", *SHARDS, namespace="ops")
    put(cluster, "db", LEADER, namespace="ops")
    put(cluster, "other", Lease(name="other", holder="x_y", report=Report(mode="leader")))
    told = json.loads(kopf_command("shards", "-n", "ops", "--json").output)
    assert [(group["name"], group["namespace"], group["mode"]) for group in told] == [
        ("db", "ops", "leader"),
        ("web", "ops", "shards"),
    ]
    assert told == json.loads(kopf_command("shards", "-n", "ops", KOPF_SHARDS_JSON="1").output)
    first = told[1]["replicas"][0]
    assert {key: first[key] for key in ("name", "role", "share", "version", "exiting", "duration")} == {
        "name": "web-0",
        "role": "coordinator",
        "share": 0.25,
        "version": "1.2",
        "exiting": False,
        "duration": 15,
    }
    assert told[0]["replicas"][0]["slots"] == "0-255"


def test_owners_without_leases_are_gone(cluster: LocalCluster, kopf_command: Kopf) -> None:
    put(cluster, "web", *SHARDS[:2])
    assert [line.split()[:2] for line in kopf_command("shards", "web").output.splitlines()[2:4]] == [
        ["web-0", "coordinator"],
        ["web-1", "gone"],
    ]


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        ({"kopf.dev/assignment": "{", "kopf.dev/replica": "[]"}, {"holderIdentity": "web-0"}),
        (
            {"kopf.dev/assignment": '{"generation": 1}'},
            {"holderIdentity": "web-0", "renewTime": "2026-11-27T10:00:00.000000Z"},
        ),
        ({}, {}),
    ],
)
def test_leases_that_make_no_sense(
    cluster: LocalCluster, kopf_command: Kopf, annotations: dict[str, str], spec: dict[str, Any]
) -> None:
    metadata = {"name": "web", "labels": {"kopf.dev/coordination": "web"}, "annotations": annotations}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    cluster.apply({**lease, "metadata": {**metadata, "namespace": "default"}})
    result = kopf_command("shards", "web")
    assert result.exit_code == 0
    assert result.output.startswith("web in default: nobody, generation 0")


def test_there_are_none(cluster: LocalCluster, kopf_command: Kopf) -> None:
    result = kopf_command("shards", "web", "-n", "ops")
    assert result.exit_code == 1
    assert "There are no replicas of 'web' in the namespace 'ops'" in result.output
    assert "There are no replicas of an operator in the namespace 'default'" in kopf_command("shards").output


def test_replicas_that_are_gone_own_nothing(cluster: LocalCluster, kopf_command: Kopf) -> None:
    cluster.apply(EXAMPLE / "crd.yaml")
    slot = get_slot(cluster.apply(OBJ)[0]["metadata"]["uid"])
    put(cluster, "web", SHARDS[0])  # the others have released their Leases
    told = kopf_command("explain", "kex", "obj").output
    assert f"The replicas of 'web' in 'default': slot {slot} of the object has no owner now." in told


def test_the_owner_of_an_object_is_explained(cluster: LocalCluster, kopf_command: Kopf) -> None:
    cluster.apply(EXAMPLE / "crd.yaml")
    uid = cluster.apply(OBJ)[0]["metadata"]["uid"]
    slot = get_slot(uid)
    assert "replicas" not in kopf_command("explain", "kex", "obj").output
    put(cluster, "db", LEADER)
    put(cluster, "web", *SHARDS)
    told = kopf_command("explain", "kex", "obj").output
    assert "The replicas of 'db' in 'default': the leader is db-1." in told
    expected = [
        f"slot {slot} of the object belongs to web-0.",
        f"slot {slot} of the object belongs to web-1, and moves to web-0.",
        f"slot {slot} of the object belongs to web-1.",
        f"slot {slot} of the object has no owner now.",
    ][slot % 4]
    assert f"The replicas of 'web' in 'default': {expected}" in told
