"""
Reviews of any kind: whatever comes, it is answered, and honest reviews & probes are answered meanwhile.

How many: ``KOPF_HOSTILE_INPUTS``, as of other hostile inputs.
"""

from __future__ import annotations

import asyncio
import copy
import json
import pathlib
import random
from typing import Any

import aiohttp
import pytest

from tests.admission.reviewing import make_review
from tests.hostile.inputs import COUNT, get_documents
from tests.hostile.oracle import get_promptness
from tests.hostile.sieges import living
from tests.patience import PATIENCE, wait_until

PATHS = ["/check", "/", "/unknown", "/check?timeout=0s", "/check?timeout=999999999999999999999h", "/%00%0a", "//x"]
TYPES = [*["application/json"] * 8, "text/plain", "application/x-json"]
FIELDS = [
    "uid",
    "name",
    "namespace",
    "resource",
    "operation",
    "object",
    "oldObject",
    "userInfo",
    "dryRun",
    "subResource",
]
SECRET = "very-secret-value"


def make_bodies() -> list[bytes]:
    """Of generated documents: instead of reviews, and in their places."""
    rng = random.Random(0)
    bodies: list[bytes] = []
    for text in get_documents():
        document = text.encode("utf-8", "surrogatepass")
        review: dict[str, Any] = copy.deepcopy(make_review(rng.choice(["CREATE", "UPDATE", "DELETE", "CONNECT"])))
        review["request"]["extra"] = SECRET
        match rng.randrange(4):
            case 0:
                bodies.append(document)
            case 1:
                review["request"] = "HERE"
                bodies.append(json.dumps(review).encode().replace(b'"HERE"', document))
            case _:
                review["request"][rng.choice(FIELDS)] = "HERE"
                bodies.append(json.dumps(review).encode().replace(b'"HERE"', document))
    return bodies


@pytest.mark.timeout(300 + COUNT / 10)
async def test_hostile_reviews(tmp_path: pathlib.Path) -> None:
    rng, bodies = random.Random(1), make_bodies()
    async with living(tmp_path) as victim, aiohttp.ClientSession() as session:
        await victim.review(session)
        files, memory, lines = victim.files, victim.memory, victim.lines
        statuses: set[int] = set()
        for index, body in enumerate(bodies):
            url = f"https://127.0.0.1:{victim.webhook_port}{rng.choice(PATHS)}"
            headers = {"Content-Type": rng.choice(TYPES)}
            async with (
                asyncio.timeout(PATIENCE),
                session.post(url, data=body, headers=headers, ssl=victim.context) as response,
            ):
                statuses.add(response.status)
                assert response.status in (200, 400, 404, 413, 415, 504), (body[:1000], await response.text())
            if index % 10 == 0:
                started = victim.read_clock()
                async with asyncio.timeout(PATIENCE):
                    await victim.review(session)
                    await victim.probe(session)
                assert victim.read_clock() - started < get_promptness()
        assert 400 in statuses
        assert await victim.handle("second") < get_promptness()
        await wait_until(lambda: victim.files <= files + 5)
        assert victim.memory - memory < 60
        assert victim.lines - lines < 500 + COUNT / 10
        output = victim.process.output
        assert SECRET not in output
        assert "\x1b" not in output
        assert "\0" not in output
        assert "Traceback" not in output
