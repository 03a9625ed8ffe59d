"""Daemons and timers that can be stopped."""
import asyncio
import contextlib
import time

import kopf


@kopf.daemon("widgets")
def watch_fn(stopped, logger, **_):
    while not stopped:
        logger.info("Watching.")
        stopped.wait(60)


@kopf.daemon("widgets", cancellation_timeout=5)
async def poll_fn(logger, **_):
    while True:
        logger.info("Polling.")
        await asyncio.sleep(60)


@kopf.daemon("widgets")
async def wait_fn(stopped, **_):
    while True:
        if stopped:
            break
        await stopped.wait(10)


@kopf.daemon("widgets")
def retry_fn(spec, **_):
    for _attempt in range(3):
        time.sleep(1)
    raise kopf.TemporaryError("Once more.", delay=60)


@kopf.daemon("widgets", cancellation_timeout=5)
async def stream_fn(name, **_):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print(f"It is over with {name}.")


@kopf.daemon("widgets")
async def task_fn(stopped, **_):
    task = asyncio.create_task(asyncio.sleep(3600))
    await stopped.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@kopf.timer("widgets", idle=10)
def idle_fn(patch, **_):
    patch.status["phase"] = "Idle"


OPTIONS = {"interval": 60}


@kopf.timer("widgets", **OPTIONS)
def options_fn(**_):
    pass
