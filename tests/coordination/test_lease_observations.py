from __future__ import annotations

import dataclasses

import pytest

from kopf._coordination.assignment import Assignment, Report
from kopf._coordination.lease_observations import LeaseObservations
from kopf._coordination.leases import LEADER, SHARDS, Lease, Terms
from kopf._coordination.replica_protocol import Replica


@pytest.fixture
def observed() -> LeaseObservations:
    return LeaseObservations("op", 15)


def make_lease(version: int, name: str = "op-0", holder: str = "a", mode: str = SHARDS, **report: int | str) -> Lease:
    fields: dict[str, object] = {"mode": mode, **report}
    return Lease(name=name, version=str(version), holder=holder, duration=15, report=Report(**fields))  # type: ignore[arg-type]


def test_older_versions_are_ignored(observed: LeaseObservations) -> None:
    assert observed.observe(make_lease(10), 0)
    assert not observed.observe(make_lease(10), 1)
    assert not observed.observe(make_lease(9, holder="b"), 2)
    assert observed.replicas["a"].expiry == 15
    observed.observe_absence("op-0", "9", 3)
    assert "a" in observed.replicas
    observed.observe_absence("op-0", "11", 4)
    assert not observed.replicas


def test_replicas_with_leases_are_not_gone_however_old_these_are(observed: LeaseObservations) -> None:
    observed.observe(make_lease(10), 0)
    assert not observed.is_gone("a", 1000)


def test_replicas_are_gone_at_once_if_somebody_says_so(observed: LeaseObservations) -> None:
    observed.observe(make_lease(10), 0)
    observed.observe(make_lease(11, holder="", former="a"), 1)
    assert observed.is_gone("a", 1)


def test_replicas_are_gone_some_time_after_their_leases_are(observed: LeaseObservations) -> None:
    observed.observe(make_lease(10), 0)
    observed.observe_absence("op-0", "11", 100)
    assert not observed.is_gone("a", 114)
    assert observed.is_gone("a", 115)


def test_replicas_that_were_never_seen_are_gone_some_time_after_the_first_look(
    observed: LeaseObservations,
) -> None:
    assert not observed.is_gone("a", 1000)
    observed.expect(["a"], 1000)
    observed.expect(["a"], 1010)
    assert not observed.is_gone("a", 1014)
    assert observed.is_gone("a", 1015)


@pytest.mark.parametrize(("mode", "is_gone"), [(LEADER, True), (SHARDS, False)])
def test_the_lease_of_the_coordinator_is_the_life_of_leaders_only(
    observed: LeaseObservations, mode: str, is_gone: bool
) -> None:
    observed.observe(make_lease(10, name="op", mode=mode), 0)
    observed.observe(make_lease(11, name="op", mode=mode, holder="b"), 10)
    observed.observe(make_lease(12), 12)
    observed.observe_absence("op-0", "13", 20)
    observed.observe(make_lease(14, name="op", mode=mode, holder="c"), 30)
    assert observed.is_gone("b", 45) is is_gone


def test_a_new_assignment_is_settled_when_all_know_it_and_the_former_one_is_over(observed: LeaseObservations) -> None:
    assignment = Assignment(generation=11, born=11, places={})
    head = Lease(name="op", version="12", holder="a", duration=15, assignment=assignment)
    observed.observe(head, 100)
    observed.observe(make_lease(13, seen=11), 101)
    observed.observe(make_lease(14, name="op-1", holder="b", seen=10), 102)
    assert not observed.is_settled(11, 200)
    observed.observe(make_lease(15, name="op-1", holder="b", seen=11), 103)
    assert not observed.is_settled(11, 114)
    assert observed.is_settled(11, 115)


@pytest.mark.parametrize("mode", [LEADER, SHARDS])
def test_leases_that_are_restored_from_a_backup_are_taken_anew(mode: str) -> None:
    names = iter("abc")
    replica = Replica(Terms(mode=mode, name="op", identity="web-1"), lambda: next(names))

    def write(now: float, version: int) -> list[Lease]:
        step = replica.step(now)
        written = [dataclasses.replace(lease, version=f"{version}") for lease in step.writes]
        for lease in written:
            replica.accept_write(lease.name, lease, now)
        return written

    replica.accept_listing([], 0)
    backup = write(0, 100)[0]
    assert backup.holder == "a"
    write(3, 200)
    write(6, 300)

    now = 9.0
    for lease in replica.step(now).writes:
        replica.accept_write(lease.name, None, now)
    assert backup.name in replica.step(now).reads
    replica.accept_read(backup.name, backup, now)
    assert replica.step(now).gave_up
    replica.accept_stop()
    assert backup.name in replica.step(now).reads
    replica.accept_read(backup.name, backup, now)
    (lease,) = [lease for lease in replica.step(now).writes if lease.name == backup.name]
    assert (lease.version, lease.holder) == ("100", "b")
