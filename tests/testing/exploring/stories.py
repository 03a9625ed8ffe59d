"""
One story of users, for the operator of sites without bugs and with each of them.

Where a bug is found by the first few runs, no more of them are made.
"""

from __future__ import annotations

from typing import Any

from kopf.testing import Simulation, explore, walk_schema
from tests.testing.exploring import sites

OPTIONS: dict[str, Any] = {"crds": sites.CRD, "observe": lambda: dict(sites.dns)}


async def tell(simulation: Simulation) -> None:
    sites.dns.clear()
    await simulation.apply(sites.SITE)
    await simulation.settle()
    await simulation.patch("sites", "one", {"spec": {"size": 2}})
    await simulation.settle()


@explore(registry=sites.make_operator(), runs=33, **OPTIONS)
async def right(simulation: Simulation) -> None:
    await tell(simulation)


@explore(registry=sites.make_operator("create-then-record"), troubles=["crash"], runs=6, **OPTIONS)
async def create_then_record(simulation: Simulation) -> None:
    await tell(simulation)


@explore(registry=sites.make_operator("stale view"), troubles=["view", "order"], runs=1, **OPTIONS)
async def stale_view(simulation: Simulation) -> None:
    sites.dns.clear()
    await simulation.apply(sites.SITE)
    await simulation.until(lambda: "operator creates configmaps" in str(simulation.journal))
    await simulation.patch("sites", "one", {"spec": {"size": 2}})
    await simulation.settle()


@explore(registry=sites.make_operator("losing a child"), troubles=["downtime"], **OPTIONS)
async def losing_a_child(simulation: Simulation) -> None:
    await tell(simulation)


@explore(registry=sites.make_operator("missing finalizer"), troubles=["deletion"], runs=2, **OPTIONS)
async def missing_finalizer(simulation: Simulation) -> None:
    await tell(simulation)


@explore(registry=sites.make_operator("endless retry"), troubles=["lost answer"], runs=3, **OPTIONS)
async def endless_retry(simulation: Simulation) -> None:
    await tell(simulation)


@walk_schema(registry=sites.make_operator(), runs=12, **OPTIONS)
def right_site() -> dict[str, Any]:
    return sites.SITE


@walk_schema(registry=sites.make_operator("forgetting a field"), runs=7, **OPTIONS)
def forgetting_a_field() -> dict[str, Any]:
    return sites.SITE
