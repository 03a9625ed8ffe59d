"""Variables of the file that are not states of objects."""
import asyncio

import kopf

client = None
lock = None
cache = {}


@kopf.on.startup()
async def start(**_):
    global lock
    lock = asyncio.Lock()


@kopf.on.create("widgets")
async def create_fn(name, uid, **_):
    global client
    if client is None:
        client = object()
    async with lock:
        cache[uid] = name


@kopf.on.cleanup()
def stop(**_):
    global client
    client = None
