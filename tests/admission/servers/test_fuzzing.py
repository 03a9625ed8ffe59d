"""Random and mutated requests to a real operator: whatever comes, it is answered, and nothing breaks."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from tests.admission.servers.serving import connect, make_review, wait_until_served
from tests.behaviour.running import Operator
from tests.ports import find_free_port

pytestmark = pytest.mark.fastforward("exit")

SCALARS = [None, True, False, 0, -1, 1.5, 10**30, "", "x", "CREATE", "\x00", "é", [], {}, [1], {"a": 1}, "*", "/", "~1"]

JSON = {"Content-Type": "application/json"}


def iter_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from iter_paths(child, (*path, key))


def mutate(review: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Change, remove, or duplicate some of its values, at any depth."""
    for _ in range(rng.randint(1, 4)):
        paths = list(iter_paths(review))
        if not paths:
            break
        *parents, key = rng.choice(paths)
        target: Any = review
        for parent in parents:
            target = target[parent]
        match rng.choice(["replace", "remove", "swap"]):
            case "replace":
                target[key] = json.loads(json.dumps(rng.choice(SCALARS)))
            case "remove":
                del target[key]
            case "swap":
                target[key] = json.loads(
                    json.dumps(target.get(rng.choice(list(target))) if isinstance(target, dict) else rng.choice(target))
                )
    return review


def make_body(rng: random.Random) -> bytes:
    match rng.choice(["random", "cut", "bytes", "mutated", "mutated", "mutated", "mutated"]):
        case "random":
            return rng.randbytes(rng.randint(0, 200))
        case "cut":
            data = json.dumps(make_review()).encode()
            return data[: rng.randint(0, len(data))]
        case "bytes":
            mutable = bytearray(json.dumps(make_review()).encode())
            for _ in range(rng.randint(1, 5)):
                mutable[rng.randrange(len(mutable))] = rng.randrange(256)
            return bytes(mutable)
        case _:
            operation = rng.choice(["CREATE", "UPDATE", "DELETE", "CONNECT"])
            old = make_review()["request"]["object"] if operation in ("UPDATE", "DELETE") else None
            return json.dumps(mutate(make_review(operation=operation, oldObject=old), rng)).encode()


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_comes_is_answered(seed: int, operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    @kopf.on.validate("kopfexamples", id="validate")
    def validate(body: kopf.Body, warnings: list[str], old: Any, new: Any, diff: Any, userinfo: Any, **_: Any) -> None:
        warnings.append("seen")

    @kopf.on.mutate("kopfexamples", id="mutate_fn")
    def mutate_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["seen"] = True

    port, rng = find_free_port(), random.Random(seed)
    operator.set("admission.server", kopf.WebhookServer(insecure=True, port=port))
    await operator.launch()
    await wait_until_served(port)
    statuses: set[int] = set()
    async with connect() as session:
        for _ in range(300):
            path = rng.choice(["", "/validate", "/mutate_fn", "/absent", "/%00", "/validate/x", "/%2e%2e/x"])
            data = make_body(rng)
            async with session.post(f"http://localhost:{port}{path}", data=data, headers=JSON) as response:
                statuses.add(response.status)
                text = await response.text()
            assert response.status in (200, 400, 404), (response.status, data)
            if response.status == 200:
                assert json.loads(text)["response"]["allowed"] in (True, False)
    assert statuses == {200, 400, 404}
    assert "Traceback" not in caplog.text
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
