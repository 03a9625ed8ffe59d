"""
Reports that take half a minute each. With several replicas, they are rendered at the same time, each of them once.

    kopf run handlers.py --shards=reports             # all replicas work, each on its part of the objects
    kopf run handlers.py --leader-election=reports    # one works, the others stand by
"""

import asyncio

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.coordination.drain_timeout = 40  # a report can be finished before its object moves to another replica
    settings.queueing.worker_limit = 10  # for each replica: so more replicas render more


@kopf.on.create("reports")
async def render(name, logger, **_):
    logger.info(f"Rendering {name}.")
    await asyncio.sleep(30)
    return {"pages": len(name)}
