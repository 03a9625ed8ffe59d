"""Numbers in custom resources, as a real server (1.20) answers. Without fractions, they are integers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import APPLY, CRDS, KEXES, MERGE, Client, make_definition, make_kex

GIVEN = "[1.0,1e2,1.5,0.0,1e20,1e21,1e-7,12345678901234567000.0]"
STORED = ["1", "100", "1.5", "0", "100000000000000000000", "1e+21", "1e-07", "12345678901234567000"]
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"


async def read(client: Client) -> list[Any]:
    """Return the list with the types of the numbers: integers, or those with fractions."""
    return [repr(value) for value in (await client.get(f"{KEXES}/one"))["spec"]["x"]]


def whole(**spec: Any) -> str:
    obj = {"apiVersion": "example.com/v1", "kind": "Kex", "metadata": {"name": "one"}, "spec": spec}
    return json.dumps(obj).replace('"GIVEN"', GIVEN)


@pytest.mark.parametrize(
    ("method", "path", "content_type", "body"),
    [
        ("POST", KEXES, "application/json", whole(x="GIVEN")),
        ("POST", KEXES, YAML, whole(x="GIVEN")),
        ("PATCH", f"{KEXES}/one?fieldManager=me", APPLY, whole(x="GIVEN")),
    ],
)
async def test_numbers_of_new_objects(client: Client, method: str, path: str, content_type: str, body: str) -> None:
    await client.create(CRDS, make_definition())
    reply = await client.call(method, path, data=body, headers={"Content-Type": content_type})
    assert reply.status == 201
    assert await read(client) == STORED


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MERGE, f'{{"spec": {{"x": {GIVEN}}}}}'),
        (JSON_PATCH, f'[{{"op": "add", "path": "/spec", "value": {{"x": {GIVEN}}}}}]'),
    ],
)
async def test_numbers_of_patches(client: Client, content_type: str, body: str) -> None:
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex())
    headers = {"Content-Type": content_type}
    assert (await client.call("PATCH", f"{KEXES}/one", data=body, headers=headers)).status == 200
    assert await read(client) == STORED


async def test_numbers_do_not_change_with_the_metadata(client: Client) -> None:
    """The same numbers are written again, but differently."""
    await client.create(CRDS, make_definition())
    await client.create(KEXES, make_kex(spec={"x": [1]}))
    body = '{"metadata": {"labels": {"a": "b"}}, "spec": {"x": [1.0]}}'
    assert (await client.call("PATCH", f"{KEXES}/one", data=body, headers={"Content-Type": MERGE})).status == 200
    assert await read(client) == ["1"]


async def test_numbers_of_defaults(client: Client) -> None:
    numbers = {"type": "array", "items": {"type": "number"}, "default": [1.0, 1.5]}
    await client.create(CRDS, make_definition(spec={"type": "object", "properties": {"x": numbers}}))
    await client.create(KEXES, {**make_kex(), "spec": {}})
    assert await read(client) == ["1", "1.5"]
