import asyncio
import time

import kopf


@kopf.daemon("widgets")
def watch_fn(logger, **_):
    while True:  # expect: daemon-stopping
        logger.info("Watching.")
        time.sleep(1)


@kopf.daemon("widgets")
async def poll_fn(logger, **_):
    while True:  # expect: daemon-stopping
        logger.info("Polling.")
        await asyncio.sleep(1)
