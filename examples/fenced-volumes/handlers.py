"""
Volumes of a storage system, kept as large as their objects say: by a daemon, as the system can lose its settings.

A request can be on its way when this replica is frozen or cut off, and arrive when another one has taken over. So each
request carries the fencing token of the object: it grows with each owner, and the storage refuses the lower ones.
"""

import asyncio

import storage

import kopf

INTERVAL = 60


@kopf.daemon("volumes", cancellation_timeout=5, backoff=kopf.exponential(initial=1, maximum=60))
async def keep_size(name, spec, logger, **_):
    while True:
        actual = await storage.get_size(name)
        if actual != spec["size"]:
            token = kopf.fencing_token()
            try:
                await storage.resize(name, spec["size"], token)
            except storage.StaleTokenError:
                logger.warning(f"Another replica owns {name}: this one has the old token {token}.")
                return
            logger.info(f"Resized {name} from {actual} to {spec['size']}.")
        await asyncio.sleep(INTERVAL)


@kopf.on.delete("volumes")
async def remove(name, **_):
    await storage.remove(name, kopf.fencing_token())
