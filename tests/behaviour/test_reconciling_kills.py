"""Reconcilers whose real processes are killed at any moment: in the end, all children are as they are yielded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import sys
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Objects, Refused
from tests.patience import PATIENCE

KILLS = int(os.environ.get("KOPF_TEST_KILLS", "60")) // 20
PARENTS = 20
MAPS = "/api/v1/namespaces/default/configmaps"

HANDLERS = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False

def make(name, value):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}

@kopf.reconcile("kopfexamples", owns="configmaps")
async def async_fn(name, spec, **_):
    yield make(f"{name}-first", spec["value"])
    if spec["is_large"]:
        yield make(f"{name}-second", spec["value"])

@kopf.reconcile("kopfexamples", owns="configmaps")
def sync_fn(name, spec, **_):
    yield make(f"{name}-third", spec["value"])
"""


async def list_maps(api: API) -> dict[str, Obj]:
    items = (await api.request("GET", MAPS))["items"]
    return {item["metadata"]["name"]: item for item in items if not item["metadata"]["name"].startswith("kube-")}


async def make_trouble(api: API, kex: Objects, dice: random.Random, wanted: dict[str, Any]) -> None:
    """Change or replace a parent, or touch one of its children."""
    name = dice.choice([*wanted])
    wanted[name] = {"value": str(dice.random()), "is_large": dice.random() < 0.5}
    if dice.random() < 0.2:
        await kex.delete(name)
        await kex.create(name, spec=wanted[name])
    else:
        await kex.merge({"spec": wanted[name]}, name)
    with contextlib.suppress(Refused):  # it is not there at the moment
        child = f"{MAPS}/{dice.choice([*wanted])}-{dice.choice(['first', 'third'])}"
        if dice.random() < 0.5:
            await api.request("DELETE", child)
        else:
            await api.request("PATCH", child, {"data": {"value": "edited"}}, MERGE_PATCH)


def expect(wanted: dict[str, Any]) -> dict[str, str]:
    """What the children are to be."""
    return {
        f"{name}-{child}": spec["value"]
        for name, spec in wanted.items()
        for child in ("first", "second", "third")
        if child != "second" or spec["is_large"]
    }


@pytest.mark.timeout(300 + 10 * KILLS)
async def test_killed_at_any_moment(cluster: LocalCluster, api: API, kex: Objects, tmp_path: pathlib.Path) -> None:
    dice = random.Random(20261127)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    wanted = {f"obj{n}": {"value": str(n), "is_large": True} for n in range(PARENTS)}
    for name, spec in wanted.items():
        await kex.create(name, spec=spec)
    metadata = {"name": "foreign", "labels": {"kopf.dev/reconciler": "async_fn"}}
    foreign = await api.request("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    command = [sys.executable, "-m", "kopf", "run", str(tmp_path / "handlers.py"), "--standalone", "--all-namespaces"]
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with (tmp_path / "log").open("wb") as log:
        for life in range(KILLS + 1):
            before = cluster.counters.get(("list", "configmaps", 200), 0)
            process = await asyncio.create_subprocess_exec(*command, env=env, stdout=log, stderr=log)
            try:
                async with asyncio.timeout(PATIENCE):
                    while cluster.counters.get(("list", "configmaps", 200), 0) == before:
                        await asyncio.sleep(0.005)
                    if life < KILLS:
                        await asyncio.sleep(dice.uniform(0, 0.1))
                        for _ in range(dice.randrange(10)):
                            await make_trouble(api, kex, dice, wanted)
                            await asyncio.sleep(dice.uniform(0, 0.02))
                    else:
                        await wait_settled(api, wanted)
            finally:
                process.kill()
                await process.wait()
    maps = await list_maps(api)
    assert maps.pop("foreign")["metadata"] == foreign["metadata"]
    uids = {name: (await kex.get(name))["metadata"]["uid"] for name in wanted}
    for name, item in maps.items():
        assert [ref["uid"] for ref in item["metadata"]["ownerReferences"]] == [uids[name.partition("-")[0]]]
    assert "Traceback" not in (tmp_path / "log").read_text()


async def wait_settled(api: API, wanted: dict[str, Any]) -> None:
    def strip(maps: dict[str, Obj]) -> dict[str, str]:
        return {name: item["data"]["value"] for name, item in maps.items() if name != "foreign"}

    while strip(await list_maps(api)) != expect(wanted):
        await asyncio.sleep(0.05)
