"""
The floor of a handled object: what any operator on ``aiohttp`` has to do, and nothing else.

It watches the objects of the benchmark; for each new one, it logs two lines, as the framework does, and saves the last
handled configuration by a patch. With several handlers (the argument), each but the last one logs a line and saves that
it is done. With no handlers, it does with each event what a handler of raw events does. No retries, no filters, no
memory of what was done.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import logging
import os
import pathlib
import ssl
import sys

import aiohttp
import msgspec
import yaml

from benchmarks.loading import API, LAST_HANDLED, Metadata

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s")
logger = logging.getLogger("bare")

HANDLERS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
_NOBODY = os.open(os.devnull, os.O_WRONLY)
_PROGRESS = '{"started":"2026-01-01T00:00:00.000000+00:00","purpose":"create","retries":1,"success":true}'


class Widget(msgspec.Struct):
    """Only the metadata are decoded."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class Event(msgspec.Struct):
    """One line of the stream."""

    type: str
    object: Widget


async def handle(session: aiohttp.ClientSession, widget: Widget) -> None:
    """Log as if it were handled, and save that."""
    name = widget.metadata.name
    for number in range(1, HANDLERS):
        logger.info("[default/%s] Handler 'create_fn' succeeded.", name)
        await save(session, name, {f"bare.example.com/handler-{number}": _PROGRESS})
    logger.info("[default/%s] Handler 'create_fn' succeeded.", name)
    logger.info("[default/%s] Creation is processed: 1 succeeded; 0 failed.", name)
    await save(session, name, {LAST_HANDLED: bytes(widget.spec).decode()})


async def save(session: aiohttp.ClientSession, name: str, annotations: dict[str, str]) -> None:
    """Patch the object."""
    patch = {"metadata": {"annotations": annotations}}
    headers = {"Content-Type": "application/merge-patch+json"}
    path = f"{API}/namespaces/default/widgets/{name}"
    async with session.patch(path, data=msgspec.json.encode(patch), headers=headers) as response:
        await response.read()


def report(event: Event) -> None:
    """Do what a handler of raw events does, here for nobody; and log a line of that."""
    name = event.object.metadata.name
    os.write(_NOBODY, f"{event.type} {name}\n".encode())
    logger.info("[default/%s] Handler 'event_fn' succeeded.", name)


async def follow(session: aiohttp.ClientSession) -> None:
    """Watch, forever."""
    decoder = msgspec.json.Decoder(Event)
    tasks: set[asyncio.Task[None]] = set()
    rest = b""
    async with session.get(f"{API}/widgets?watch=true", timeout=aiohttp.ClientTimeout()) as response:
        while chunk := await response.content.readany():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = decoder.decode(line)
                if not HANDLERS:
                    report(event)
                elif event.type == "ADDED":
                    task = asyncio.create_task(handle(session, event.object))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)


async def main(kubeconfig: str) -> None:
    """Connect as the kubeconfig says."""
    config = yaml.safe_load(kubeconfig)
    place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(place["certificate-authority-data"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority), limit=0)
    headers = {"Authorization": f"Bearer {user['token']}"}
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        place["server"], connector=connector, headers=headers, cookie_jar=jar, raise_for_status=True
    ) as session:
        await follow(session)


if __name__ == "__main__":
    text = pathlib.Path(os.environ["KUBECONFIG"]).read_text()
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        uvloop.run(main(text))
    else:
        asyncio.run(main(text))
