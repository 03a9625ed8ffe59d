"""Peering: of several operators, the one with the highest priority works; the others wait until it is gone."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import re
from typing import Any

import pytest

import kopf
from kopf._handlers.time_source import TimeSource
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Objects, connect
from tests.behaviour.peerings import PeeringObject, make_other, running
from tests.behaviour.running import Calls, Logs, Operator, now

PEERINGS = "clusterkopfpeerings"
PAUSING = "Pausing operations in favour of .*"
RESUMING = "Resuming operations after the pause.*"
CONFLICT = "Possibly conflicting operators with the same priority: .*"


@pytest.fixture
def registries(registry: kopf.OperatorRegistry, calls: Calls) -> list[kopf.OperatorRegistry]:
    """Three operators with the same handlers, which tell in which of the operators they are called."""
    registries = [registry, make_other(registry), make_other(registry)]
    for number, each in enumerate(registries):
        fn = calls.noting(lambda param, name, reason, **_: (param, name, reason.value))
        kopf.on.delete("kopfexamples", registry=each, param=number)(fn)
        kopf.on.update("kopfexamples", registry=each, param=number)(fn)
        kopf.on.create("kopfexamples", registry=each, param=number)(fn)
        kopf.on.resume("kopfexamples", registry=each, param=number)(fn)
    return registries


async def test_the_higher_priority_takes_over_and_gives_back(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """Every change is handled once, by whoever works at the moment; what is handled by one is not by another."""
    await operator.start_and_handle(kex, "a")
    async with running(cluster, registries[1], priority=5):
        await logs.wait(PAUSING)
        await kex.create_and_wait("b")
        await kex.change_and_wait("a", field="changed")
        await kex.create_and_wait("gone")
        await kex.delete_and_wait("gone")
    await logs.wait(RESUMING)
    await kex.create_and_wait("c")
    await kex.delete_and_wait("b")
    await operator.stop()
    assert calls == [
        (0, "a", "create"),
        (1, "a", "resume"),
        (1, "b", "create"),
        (1, "a", "update"),
        (1, "gone", "create"),
        (1, "gone", "delete"),
        (0, "c", "create"),
        (0, "b", "delete"),
    ]
    assert await peering.get_records() == {}


async def test_what_happens_while_all_are_paused_is_handled_later(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    await operator.start()
    for name in ("changed", "deleted", "both", "same"):
        await kex.create_and_wait(name)
    calls.items.clear()
    await peering.put("human")
    await logs.wait(PAUSING)
    await kex.create("created")
    await kex.merge({"spec": {"field": "one"}}, "changed")
    await kex.merge({"spec": {"field": "two"}}, "changed")
    await kex.merge({"spec": {"field": "one"}}, "both")
    await kex.delete("both")
    await kex.delete("deleted")
    await peering.remove("human")
    await kex.wait_handled("created")
    await kex.wait_handled("changed", field="two")
    await kex.wait_gone("both")
    await kex.wait_gone("deleted")
    await operator.stop()
    assert sorted(calls) == [
        (0, "both", "delete"),
        (0, "changed", "update"),
        (0, "created", "create"),
        (0, "deleted", "delete"),
    ]


async def test_equal_priorities_pause_everybody(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    await operator.start(priority=7)
    async with running(cluster, registries[1], priority=7):
        await logs.wait(CONFLICT, times=2)
        await kex.create()
        message = (await logs.wait("Pausing all operators, including self: .*", times=2)).getMessage()
        assert len(re.findall(r"<Peer [^ ]+: priority=7, lifetime=60, lastseen='[^']+'>", message)) == 2
        assert not calls.items
    await kex.wait_handled()
    await operator.stop()
    assert len(calls) == 1
    assert all(record.levelname == "WARNING" for record in logs.find(CONFLICT))


async def test_three_operators_one_after_another(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    await operator.start(priority=3)
    async with running(cluster, registries[1], priority=1), running(cluster, registries[2], priority=2) as second:
        await logs.wait(PAUSING, times=2)
        await kex.create_and_wait("a")
        await operator.stop()
        await calls.wait(lambda items: (2, "a", "resume") in items)
        await kex.create_and_wait("b")
        await second.stop()
        await calls.wait(lambda items: (1, "b", "resume") in items)
    assert [item for item in calls if item[2] == "create"] == [(0, "a", "create"), (2, "b", "create")]
    assert not logs.find(CONFLICT)


@pytest.mark.fastforward
async def test_those_who_die_silently_are_waited_for_no_longer_than_they_live(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    await operator.start()
    dying = Operator(cluster, registries[1])
    dying.set("peering.lifetime", 100)
    await dying.launch(priority=5)
    await logs.wait(PAUSING)
    await kex.create_and_wait()
    await asyncio.sleep(3600)
    assert not logs.find(RESUMING)  # as long as it is alive
    assert len(logs.find(PAUSING)) == 1  # however often it is seen
    rule = cluster.faults.inject(action="disconnect", verb="patch", resource=PEERINGS)
    await dying.stop()
    since = now()
    cluster.faults.remove(rule)
    await logs.wait(RESUMING)
    assert now() - since < 101
    await kex.create_and_wait("next")
    assert calls == [(1, "obj", "create"), (0, "next", "create")]
    assert len(await peering.get_records()) == 2
    await peering.wait(lambda records: len(records) == 1)  # the remains are removed
    await logs.wait("Could not withdraw from the peering 'default' cluster-wide.*")


@pytest.mark.fastforward
@pytest.mark.parametrize("hours", [-2, +2])
async def test_wrong_clocks_do_not_matter(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    logs: Logs,
    hours: int,
) -> None:
    """Others are alive as long as they renew their records, whatever is written there."""

    async def keep_alive() -> None:
        seen = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours, seconds=now())
        await peering.put("other", {"priority": 5, "lifetime": 60, "lastseen": seen.isoformat()})

    await operator.start()
    for _ in range(10):
        await keep_alive()
        await asyncio.sleep(50)
    await logs.wait(PAUSING)
    assert not logs.find(RESUMING)
    since = now()
    await logs.wait(RESUMING)
    assert now() - since < 11


@pytest.mark.fastforward
async def test_the_records_are_renewed_before_they_expire(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get_date, get_time = TimeSource.now, asyncio.get_running_loop().time
    monkeypatch.setattr(TimeSource, "now", lambda self: get_date(self) + datetime.timedelta(seconds=get_time()))
    await operator.start(priority=3)
    [identity] = await peering.get_records()
    assert re.fullmatch(r".+@.+/\d{14}/[a-z0-9]{3}", identity)
    seen: list[str] = []
    since = now()
    while len(seen) < 20:
        records = await peering.wait(lambda records: not seen or records[identity]["lastseen"] != seen[-1])
        assert records.keys() == {identity}
        assert records[identity].keys() == {"priority", "lifetime", "lastseen"}
        assert (records[identity]["priority"], records[identity]["lifetime"]) == (3, 60)
        seen.append(records[identity]["lastseen"])
    moments = [datetime.datetime.fromisoformat(text) for text in seen]
    assert all(moment.utcoffset() == datetime.timedelta(0) for moment in moments)
    delays = [(after - before).total_seconds() for before, after in itertools.pairwise(moments)]
    assert all(49 < delay < 56 for delay in delays)
    assert max(delays) - min(delays) > 0.1  # not all operators at once
    assert now() - since > 900
    await logs.wait("Keep-alive in 'default' cluster-wide: ok.", times=20)


@pytest.mark.fastforward
async def test_the_records_follow_the_jumps_of_the_clock(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A suspended laptop does not know how long it has slept; others compare the record with the date."""
    await operator.start()
    [identity] = await peering.get_records()
    get_date, skew = TimeSource.now, datetime.timedelta(days=100)
    monkeypatch.setattr(TimeSource, "now", lambda self: get_date(self) + skew)
    awake = (datetime.datetime.now(datetime.UTC) + skew).isoformat()
    await peering.wait(lambda records: records[identity]["lastseen"] > awake)


@pytest.mark.fastforward
async def test_stealth_is_about_logs_only(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    logs: Logs,
) -> None:
    kopf.on.startup()(lambda settings, **_: setattr(settings.peering, "stealth", True))
    await operator.start()
    [(identity, record)] = (await peering.get_records()).items()
    await peering.wait(lambda records: records[identity] != record)
    await operator.stop()
    assert not logs.find("Keep-alive.*")


async def test_the_record_is_withdrawn_only_when_the_work_is_over(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    calls: Calls,
) -> None:
    release = asyncio.Event()

    @kopf.on.create("kopfexamples", registry=registries[0], id="slow")
    async def slow(**_: Any) -> None:
        calls.append("begin")
        await release.wait()
        calls.append("end")

    await operator.start(priority=5)
    async with running(cluster, registries[1]):
        await kex.create()
        await calls.wait(lambda items: "begin" in items)
        stopping = asyncio.create_task(operator.stop())
        await asyncio.sleep(0.1)
        assert len(await peering.get_records()) == 2
        release.set()
        await stopping
        await calls.wait(lambda items: (1, "obj", "resume") in items or (1, "obj", "create") in items)
    assert calls.items.index("end") < len(calls) - 1


async def test_the_record_is_withdrawn_even_if_the_credentials_expire_at_that_very_moment(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
) -> None:
    """Those who renew the credentials stop later than those who need them."""
    await operator.start()
    assert len(await peering.get_records()) == 1
    cluster.faults.expire_token()
    await operator.stop()
    async with connect(cluster) as api:  # the credentials of the test have expired, too
        assert await PeeringObject(api).get_records() == {}


@pytest.mark.parametrize(("options", "expected"), [({"identity": "it-is-me"}, "it-is-me"), ({}, "pod-xyz")])
async def test_identities_can_be_chosen_and_pods_are_known_by_their_names(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    expected: str,
) -> None:
    monkeypatch.setenv("POD_ID", "pod-xyz")
    await operator.start(**options)
    assert (await peering.get_records()).keys() == {expected}


async def test_foreign_records_do_not_matter(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
    kex: Objects,
    logs: Logs,
) -> None:
    await peering.put("broken", {"priority": "high", "lastseen": "now"})
    await peering.put("lower", priority=-1)
    await operator.start()
    await peering.put("text", "hello")
    await peering.put("dead", {"priority": 99, "lifetime": 0, "lastseen": "2020-01-01T00:00:00"})
    await kex.create_and_wait()
    await logs.wait("The record of 'broken' in the peering 'default' cluster-wide is ignored: .*")
    await logs.wait("The record of 'text' in the peering 'default' cluster-wide is ignored: .*")
    await operator.stop()
    assert not logs.find(PAUSING)
    assert {"broken", "lower", "text"} <= (await peering.get_records()).keys()


@pytest.mark.fastforward
async def test_removed_records_are_restored(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    peering: PeeringObject,
) -> None:
    await operator.start()
    [identity] = await peering.get_records()
    since = now()
    await peering.remove(identity)
    await peering.wait(lambda records: identity in records)
    assert now() - since < 10


@pytest.mark.fastforward
@pytest.mark.parametrize("status", [409, 422, 500])
async def test_refused_keep_alives_are_repeated(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    logs: Logs,
    status: int,
) -> None:
    cluster.faults.inject(status, verb="patch", resource=PEERINGS, times=6)
    await operator.start_and_handle(kex)
    await peering.wait(len)
    failures = logs.find("Keep-alive in 'default' cluster-wide has failed, and is tried again: .*")
    assert [record.levelname for record in failures].count("WARNING") == 1


@pytest.mark.fastforward
async def test_broken_streams_do_not_make_others_dead(
    operator: Operator,
    registries: list[kopf.OperatorRegistry],
    cluster: LocalCluster,
    peering: PeeringObject,
    logs: Logs,
) -> None:
    """Their records are also seen when our own one is renewed."""
    async with running(cluster, registries[1], priority=5):
        await operator.launch()
        await logs.wait(PAUSING)
        cluster.faults.inject(500, verb="watch", resource=PEERINGS)
        cluster.faults.inject(500, verb="list", resource=PEERINGS)
        cluster.faults.cut_watches()
        await asyncio.sleep(1000)
        assert not logs.find(RESUMING)
        cluster.faults.clear()
