import asyncio

import kopf


@kopf.on.create("widgets")
async def create_fn(name, **_):
    asyncio.sleep(5)  # expect: not-awaited
    notify(name)  # expect: not-awaited
    kopf.apply({"apiVersion": "v1", "kind": "ConfigMap"})  # expect: not-awaited


async def notify(name):
    await asyncio.sleep(1)


@kopf.daemon("widgets")
async def watch_fn(stopped, **_):
    while not stopped:
        stopped.wait(60)  # expect: not-awaited
