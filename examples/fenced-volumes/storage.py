"""The API of the storage: it keeps the highest token of each volume, and refuses lower ones with HTTP 412."""

import os

import aiohttp

URL = os.environ.get("STORAGE_URL", "http://127.0.0.1:8000")


class StaleTokenError(Exception):
    """A later owner has made requests already."""


async def get_size(name):
    """Get the size of the volume, or ``None`` if there is none."""
    return (await _request("GET", name, good=(200, 404))).get("size")


async def resize(name, size, token):
    """Create or resize the volume."""
    await _request("PUT", name, json={"size": size, "token": token})


async def remove(name, token):
    """Remove the volume, if it is there."""
    await _request("DELETE", name, json={"token": token}, good=(200, 404))


async def _request(method, name, *, json=None, good=(200,)):
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, f"{URL}/volumes/{name}", json=json) as response,
    ):
        if response.status == 412:
            raise StaleTokenError(name)
        if response.status not in good:
            response.raise_for_status()
        return await response.json()
