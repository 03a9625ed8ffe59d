import asyncio

import kopf


@kopf.daemon("widgets", cancellation_timeout=10)
async def watch_fn(stopped, logger, **_):
    while not stopped:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:  # expect: swallowed-error
            logger.info("Not now.")


@kopf.daemon("widgets", cancellation_timeout=10)
async def poll_fn(stopped, **_):
    while not stopped:
        try:
            await asyncio.sleep(1)
        except:  # expect: swallowed-error
            pass
