"""
The floor of a start with many objects: what any operator on ``aiohttp`` has to do with those it has handled before.

It lists the objects of the benchmark by pages of the size that the framework asks for, decodes the metadata and the
annotation with the last handled configuration, and compares that to what the object is now. It keeps only the versions.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pathlib
import resource
import ssl
from typing import Any

import aiohttp
import msgspec
import yaml

from benchmarks.loading import API, LAST_HANDLED

FIRST_PAGE, PAGE = 500, 16 * 1024 * 1024


class Metadata(msgspec.Struct):
    name: str
    uid: str
    resourceVersion: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Widget(msgspec.Struct):
    metadata: Metadata
    spec: dict[str, Any]


class ListMeta(msgspec.Struct):
    token: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    metadata: ListMeta
    items: list[Widget]


def is_handled(widget: Widget) -> bool:
    """Tell if nothing has changed since the last handled configuration."""
    annotations = dict(widget.metadata.annotations)
    last = annotations.pop(LAST_HANDLED, None)
    now = {"spec": widget.spec, "metadata": {"labels": widget.metadata.labels, "annotations": annotations}}
    return last is not None and bool(msgspec.json.decode(last) == now)


async def main(kubeconfig: str) -> None:
    config = yaml.safe_load(kubeconfig)
    place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(place["certificate-authority-data"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority))
    headers = {"Authorization": f"Bearer {user['token']}"}
    decoder = msgspec.json.Decoder(Page)
    versions: dict[str, str] = {}
    async with aiohttp.ClientSession(place["server"], connector=connector, headers=headers) as session:
        limit, token = FIRST_PAGE, ""
        while True:
            params = {"limit": str(limit), **({"continue": token} if token else {})}
            async with session.get(f"{API}/widgets", params=params, raise_for_status=True) as response:
                content = await response.read()
            page = decoder.decode(content)
            if not all(map(is_handled, page.items)):
                raise RuntimeError("There is an object that was not handled.")
            versions.update((item.metadata.uid, item.metadata.resourceVersion) for item in page.items)
            token = page.metadata.token
            if not token:
                break
            limit = max(FIRST_PAGE, PAGE * len(page.items) // len(content))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(len(versions), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(os.environ["KUBECONFIG"]).read_text()))
