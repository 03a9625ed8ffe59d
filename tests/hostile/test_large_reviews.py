"""
Reviews of anybody that are small as bytes, and large as Python objects: what they take is limited, and nobody waits.

Within the limits of bytes, a review can have millions of empty dicts, which take 25 times more memory when decoded.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import logging
import pathlib
import re
import ssl
import time

import aiohttp

from kopf._admission.servers.review_server import MAX_BODY
from tests.admission.reviewing import make_review
from tests.hostile.inputs import COUNT
from tests.hostile.oracle import get_promptness
from tests.hostile.sieges import Answers, Victim, living, measuring
from tests.hostile.spoiling import fill
from tests.patience import get_starvation, wait_until

logger = logging.getLogger(__name__)

PARALLEL = 9
ROUNDS = 1 if COUNT < 1000 else 2
"""Each kind follows others in the same operator; for the same kind again, the many inputs of each night."""

MAX_MEMORY = 200_000_000
"""Of the whole operator at its peak, in bytes."""

BODY = MAX_BODY - 100_000
"""Within the limits of bytes."""


def make_large(place: str, item: str, size: int) -> bytes:
    """Make a review with many items in that place of it."""
    review = copy.deepcopy(make_review("UPDATE" if place == "both" else "CREATE"))
    request = review["request"]
    match place:
        case "object":
            request["object"]["spec"] = {"x": "HERE"}
        case "both":
            request["object"]["spec"] = request["oldObject"]["spec"] = {"x": "HERE"}
            size //= 2
        case "userInfo":
            request["userInfo"]["extra"] = "HERE"
        case "kind":
            review["kind"] = "HERE"
        case "members":
            members = ",".join(f'"{number:x}":0' for number in range(size // 8))
            return f"{{{members},{json.dumps(review)[1:]}".encode()
    return json.dumps(review).encode().replace(b'"HERE"', fill(item, size))


async def attack(url: str, context: ssl.SSLContext, body: bytes, *, parallel: int, rounds: int) -> list[int]:
    """Send it in parallel, again and again; give the statuses, 0 is for closed connections."""

    async def post() -> int:
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(url, data=io.BytesIO(body), headers=headers, ssl=context) as response:
                return response.status
        except (aiohttp.ClientError, ConnectionError):
            return 0

    async with aiohttp.ClientSession() as session:
        return [status for _ in range(rounds) for status in await asyncio.gather(*[post() for _ in range(parallel)])]


def get_peak(victim: Victim) -> int:
    status = pathlib.Path(f"/proc/{victim.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


LARGE = {
    "objects": ("object", "{}", BODY),
    "decoded": ("both", "{}", 1_500_000),  # they are decoded: no more of them than there is memory for
    "decoded deeply": ("both", '{"a":{"b":[]}}', 1_100_000),
    "texts": ("object", '"ab"', 2_900_000),
    "user info": ("userInfo", "{}", BODY),
    "kind": ("kind", "{}", BODY),
    "members": ("members", "", BODY),
}


async def test_memory_and_honest_reviews(tmp_path: pathlib.Path) -> None:
    """One after another in one operator, so that nothing is kept of them, too."""
    async with living(tmp_path) as victim:
        url = f"https://127.0.0.1:{victim.webhook_port}/check"
        authority, review = str(tmp_path / "ca.pem"), json.dumps(make_review()).encode()
        with measuring(url, tmp_path / "reviews", "kept", authority, body=review, pace=0.05) as reviews:
            await wait_until(lambda: len(reviews.delays) >= 3)
            for name, large in LARGE.items():
                await check_one(victim, url, reviews, name, make_large(*large))
        assert "Traceback" not in victim.process.output


async def check_one(victim: Victim, url: str, reviews: Answers, name: str, body: bytes) -> None:
    started = time.monotonic()
    await attack(url, victim.context, body, parallel=1, rounds=1)
    alone = time.monotonic() - started
    calm, starvation = len(reviews.delays), get_starvation(victim.process.pid)
    statuses = await attack(url, victim.context, body, parallel=PARALLEL, rounds=ROUNDS)
    attacked = len(reviews.delays)
    await wait_until(lambda: len(reviews.delays) > attacked)
    starvation = get_starvation(victim.process.pid) - starvation
    peak, slowest = get_peak(victim), max(reviews.delays[calm:])
    logger.info(
        "%s: %d MB, the slowest honest one took %.2f s, one alone %.2f s; %s",
        name,
        peak / 1e6,
        slowest,
        alone,
        statuses,
    )
    assert peak <= MAX_MEMORY, name
    assert not reviews.problems, name
    # It can wait for one of them when it comes, and for one more before its response, but not for all.
    assert slowest <= get_promptness() + 2 * alone + starvation, name
