"""
The floor of an idle operator: one watch-stream by bare ``aiohttp`` over TLS, with nothing done about the objects.

It is run as a script of its own by ``benchmarks.idle``, so that nothing of the framework is imported: the arguments are
the server, the token, the file with the certificate authority, and the path to watch.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
import sys

import aiohttp


async def watch(server: str, token: str, authority: str, path: str) -> None:
    """List, tell that on the standard output, and watch until killed."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority))
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(server, connector=connector, headers=headers) as session:
        async with session.get(path) as response:
            version = (await response.json())["metadata"]["resourceVersion"]
        params = {"watch": "true", "resourceVersion": version}
        async with session.get(path, params=params, timeout=aiohttp.ClientTimeout()) as response:
            print(len(sys.modules), flush=True)
            while await response.content.readany():
                pass


if __name__ == "__main__":
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        uvloop.run(watch(*sys.argv[1:]))
    else:
        asyncio.run(watch(*sys.argv[1:]))
