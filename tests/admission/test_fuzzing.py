"""Whatever comes to the endpoint, it is answered: reviews that make no sense are the fault of who sends them."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

import kopf
from tests.admission.reviewing import make_object, make_review
from tests.behaviour.running import Logs, Operator
from tests.hostile.inputs import COUNT
from tests.patience import PATIENCE

pytestmark = pytest.mark.fastforward("exit")

REVIEWS_PER_SEED = max(150, COUNT)
LABELS = {"l": "v"}
JSON = {"Content-Type": "application/json"}


class Fuzzer:
    """Spoils reviews in random ways, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def make_body(self) -> bytes:
        review = self._make_review()
        for _ in range(self._random.choice([0, 1, 1, 2, 5])):
            review = self._spoil(review)
        body = json.dumps(review).encode()
        return self._spoil_bytes(body) if self._random.random() < 0.2 else body

    def make_path(self) -> str:
        known = ["/check", "/fill", "/filtered/spec.field", "/", "", "/check/", "/check?timeout=5s"]
        return self._random.choice([*known, "/unknown", "//", "/%00"])

    def _make_review(self) -> Any:
        operation = self._random.choice(["CREATE", "UPDATE", "DELETE", "CONNECT"])
        objects = [make_object(labels=LABELS), make_object({"field": None}, {"x": []}), make_object({}, annotations={})]
        new, old = self._random.choice(objects), self._random.choice(objects)
        return copy.deepcopy(make_review(operation, new, old, version=self._random.choice(["v1", "v1beta1"])))

    def _spoil(self, value: Any) -> Any:
        """Replace, remove or add something, somewhere inside."""
        if isinstance(value, dict) and value and self._random.random() < 0.9:
            key = self._random.choice(list(value))
            match self._random.randrange(8):
                case 0:
                    del value[key]
                case 1:
                    value[self._random.choice(["extra", "spec", "metadata", "", "a/b"])] = self._make_value()
                case _:
                    value[key] = self._spoil(value[key])
            return value
        if isinstance(value, list) and value and self._random.random() < 0.9:
            index = self._random.randrange(len(value))
            value[index] = self._spoil(value[index])
            return value
        return self._make_value()

    def _make_value(self) -> Any:
        values = [None, True, 0, -1, 1e308, 2**70, "", "x" * 5000, "\0", "ё\U0001f600", [], {}, [None], {"": None}]
        return self._random.choice([*values, {"name": 1}, {"labels": {"l": None}}, {"uid": []}, [[[[[]]]]]])

    def _spoil_bytes(self, body: bytes) -> bytes:
        position = self._random.randrange(len(body))
        noise = self._random.randbytes(self._random.randrange(4))
        return body[:position] + noise + body[position + self._random.randrange(10) :]


def declare() -> None:
    @kopf.on.validate("kopfexamples", subresource="*", id="check")
    def check(body: kopf.Body, meta: kopf.Meta, diff: kopf.Diff, warnings: list[str], **_: Any) -> None:
        warnings.append(f"{len(body)} {meta.get('name')!r} {len(diff)}"[:100])

    @kopf.on.mutate("kopfexamples", annotations={"a": kopf.ABSENT}, id="fill")
    async def fill(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["x"] = {"y": 1}
        patch.fns.append(lambda body: body.update(more=[]))

    @kopf.on.validate("kopfexamples", labels=LABELS, field="spec.field", id="filtered")
    def filtered(**_: Any) -> None:
        raise kopf.AdmissionError("no!", code=400)


class Address:
    """A server that tells where it listens."""

    def __init__(self) -> None:
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def configure(self, settings: kopf.OperatorSettings) -> None:
        settings.admission.server = self

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        async with kopf.WebhookServer(addr="127.0.0.1", port=0, insecure=True) as server:
            async for config in server(fn):
                self.url.set_result(config["url"] or "")
                yield config


@pytest.fixture
async def url(operator: Operator) -> str:
    """The address of the running operator."""
    address = Address()
    operator.configure = address.configure
    declare()
    await operator.launch()
    async with asyncio.timeout(PATIENCE):
        return await address.url


def check_answer(status: int, content: bytes) -> None:
    assert status in (200, 400, 404), (status, content)
    if status == 200:
        response = json.loads(content)["response"]
        assert response["allowed"] or response["status"] == {"message": "no!", "code": 400}


@pytest.mark.parametrize("seed", range(2))
async def test_spoilt_reviews(url: str, logs: Logs, seed: int) -> None:
    fuzzer = Fuzzer(seed)
    statuses = set()
    async with aiohttp.ClientSession() as session:
        for _ in range(REVIEWS_PER_SEED):
            body, path = fuzzer.make_body(), fuzzer.make_path()
            async with asyncio.timeout(PATIENCE), session.post(f"{url}{path}", data=body, headers=JSON) as response:
                check_answer(response.status, await response.read())
                statuses.add(response.status)
    assert statuses == {200, 400, 404}
    assert not [record for record in logs.records if record.exc_info]
    errors = {record.getMessage() for record in logs.records if record.levelno >= logging.ERROR}
    assert errors <= {"Webhook 'filtered/spec.field' failed permanently: no!"}


@pytest.mark.parametrize("depth", [100, 900, 2000, 100_000])
async def test_deep_reviews(url: str, logs: Logs, depth: int) -> None:
    deep = '{"x":' * depth + "1" + "}" * depth
    review = json.dumps(make_review("UPDATE", make_object({"deep": 1}), make_object({"deep": 2})))
    body = review.replace('{"deep": 1}', deep).replace('{"deep": 2}', deep.replace("1", "2")).encode()
    async with aiohttp.ClientSession() as session:
        for path in ("/check", "/fill"):
            data = io.BytesIO(body)
            async with asyncio.timeout(PATIENCE), session.post(f"{url}{path}", data=data, headers=JSON) as response:
                check_answer(response.status, await response.read())
    assert not [record for record in logs.records if record.exc_info]


async def test_parallel_reviews(url: str) -> None:
    """Many at once, and all are answered with the answers to them."""

    async def ask(number: int) -> None:
        review = make_review(uid=f"uid{number}")
        async with session.post(f"{url}/fill", json=review) as response:
            answer = await response.json()
        assert answer["response"]["uid"] == f"uid{number}"
        assert answer["response"]["allowed"]

    connector = aiohttp.TCPConnector(limit=64)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(PATIENCE):
        await asyncio.gather(*(ask(number) for number in range(500)))
