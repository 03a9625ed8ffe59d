"""
Deletions: when the test's own objects are gone, nothing of what was made for them may be left.
"""

from __future__ import annotations

import kopf_cluster
from kopf._testing.exploring.problems import Problem
from kopf._testing.simulation import Simulation
from kopf._virtual_time.journal import Write

Place = tuple[str, str, str]
_DOWNTIME = 10
"""How long the operator is away, in seconds."""
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def list_created(simulation: Simulation, *, by_operator: bool, since: int = 0) -> list[Place]:
    """List all objects that were created by the operator, or by the test; since that entry of the journal."""
    return list(
        dict.fromkeys(
            (entry.resource, entry.namespace, entry.name)
            for entry in list(simulation.journal)[since:]
            if isinstance(entry, Write)
            and entry.type == "ADDED"
            and entry.resource != _DEFINITIONS
            and not entry.author.startswith("system:")
            and (entry.author == simulation.user) == by_operator
        )
    )


def list_wanted(simulation: Simulation) -> list[Place]:
    """List the test's objects that the operator is for: custom resources; or all, if there are none of them."""
    places = list_created(simulation, by_operator=False)
    custom = {
        entry.name
        for entry in simulation.journal
        if isinstance(entry, Write) and entry.type == "ADDED" and entry.resource == _DEFINITIONS
    }
    return [place for place in places if place[0] in custom] or places


async def delete_created(simulation: Simulation) -> None:
    """Request the deletion of the test's objects, as many of them as there are."""
    for resource, namespace, name in list_wanted(simulation):
        try:
            await simulation.cluster.aio.delete(resource, name, namespace=namespace or "default")
        except kopf_cluster.APIStatus as e:
            if e.code != 404:
                raise


async def delete_during_downtime(simulation: Simulation) -> None:
    """Delete the test's objects while there is no operator."""
    await simulation.stop()
    await delete_created(simulation)
    await simulation.advance(seconds=_DOWNTIME)
    await simulation.restart()


async def find_leftovers(simulation: Simulation, since: int) -> list[Problem]:
    """Find what has remained after the deletion: the objects themselves, and those made by the operator since then."""
    problems = []
    made = list_created(simulation, by_operator=True, since=since)
    for resource, namespace, name in [*list_wanted(simulation), *made]:
        obj = await simulation.find(resource, name, namespace=namespace or "default")
        if obj is not None:
            finalizers = ", ".join(obj["metadata"].get("finalizers", ()))
            reason = f", because of its finalizers: {finalizers}" if finalizers else ""
            problems.append(
                Problem(f"leftover {resource}", f"{resource} {namespace}/{name}: it is left after the deletion{reason}")
            )
    return problems
