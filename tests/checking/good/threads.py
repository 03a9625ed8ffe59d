"""Blocking calls where they may be: in regular functions, and in threads."""
import asyncio
import subprocess
import time

import aiohttp
import kopf
import requests

URL = "https://example.com"


@kopf.on.create("widgets")
def create_fn(name, logger, **_):
    requests.post(URL, json={"name": name}, timeout=10)
    time.sleep(1)
    logger.info(subprocess.check_output(["date"]))


@kopf.on.update("widgets")
async def update_fn(name, **_):
    def send():
        requests.put(f"{URL}/{name}", timeout=10)

    await asyncio.to_thread(send)
    await asyncio.to_thread(time.sleep, 1)
    async with aiohttp.ClientSession() as session:
        await session.get(URL)
    process = await asyncio.create_subprocess_exec("date")
    await process.wait()


@kopf.on.delete("widgets")
async def delete_fn(name, **_):
    task = asyncio.create_task(notify(name))
    await asyncio.wait([task])
    await notify(name)


async def notify(name):
    await asyncio.sleep(1)
