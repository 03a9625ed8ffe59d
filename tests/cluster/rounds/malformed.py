"""
What is common for malformed requests of all kinds: how they are spoiled, and what must never happen because of them.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

from kopf.testing import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS
from tests.cluster.rounds import widgets
from tests.cluster.rounds.widgets import make_config_map, make_deployment, make_widget
from tests.cluster.rounds.wire import Answer, Wire

CORE: Final = "/api/v1/namespaces/default"


def prepare(server: LocalCluster) -> None:
    """Have something to be addressed, whatever was done to it before."""
    server.apply(widgets.DEFINITION)
    server.apply(make_config_map("one", a="1"))
    server.apply(make_widget("one", size=1, tags=["a"]))
    server.apply(make_deployment("one", "main"))


def check_alive(wire: Wire) -> None:
    answer = wire.request("GET", f"{CONFIG_MAPS}/one")
    assert (answer.status, answer.json["metadata"]["name"]) == (200, "one")


def check_refusal(answer: Answer) -> None:
    """A refusal is a complete `Status` nearly always, and it is not the server who is to blame."""
    if answer.status == 500:  # as in a real server, strangely
        assert answer.json["message"].startswith("failed to create typed patch object"), answer
        return
    if answer.status == 404 and answer.body == b"404 page not found\n":  # of a group that nobody knows
        return
    assert 400 <= answer.status < 500 or answer.status == 501, answer
    assert answer.headers["content-type"].partition(";")[0] == "application/json", answer
    status = answer.json
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == answer.status
    assert status["reason"], answer
    assert status["message"], answer


def check(answer: Answer) -> None:
    """Anything can turn out to be right; everything else is refused."""
    if answer.status not in (200, 201):
        check_refusal(answer)


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def mutate(data: bytes, rnd: random.Random) -> bytes:
    """Spoil a few bytes, in a few places."""
    result = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 2, 5))):
        start = rnd.randrange(len(result) + 1)
        end = min(len(result), start + rnd.choice((1, 1, 2, 8, 40)))
        match rnd.randrange(6):
            case 0:
                result[start:end] = b""
            case 1:
                result[start:start] = rnd.randbytes(rnd.choice((1, 3)))
            case 2:
                result[start:start] = result[start:end]
            case 3:
                result[start:end] = bytes(reversed(result[start:end]))
            case 4:
                result[start : start + 1] = rnd.choice(
                    (
                        b'"',
                        b"{",
                        b"[",
                        b"}",
                        b"]",
                        b",",
                        b":",
                        b"null",
                        b"-1",
                        b"1e999",
                        b"\\u0000",
                        b"\\ud800",
                        b"\x00",
                        b"\xff",
                        b"9" * 40,
                        b"true",
                    )
                )
            case 5:
                del result[end:]
    return bytes(result)


_STRANGE: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    0.5,
    10**20,
    "",
    "x",
    "a b",
    "\u0000",
    "x" * 300,
    "$[",
    [],
    [None],
    [[]],
    ["a", "a"],
    {},
    {"": {}},
    {"a": None},
    [{}],
    "v1",
    "object",
)


def distort(value: Any, rnd: random.Random) -> Any:
    """Replace, remove, or repeat something in the JSON value, at any depth; give the new value."""
    if isinstance(value, dict) and value and rnd.random() < 0.9:
        key = rnd.choice(list(value))
        match rnd.randrange(8):
            case 0:
                return {name: item for name, item in value.items() if name != key}
            case 1:
                other = rnd.choice(("x", "", "type", "items", "x-kubernetes-list-type", "default"))
                return {**value, other: value[key]}
        return {**value, key: distort(value[key], rnd)}
    if isinstance(value, list) and value and rnd.random() < 0.9:
        index = rnd.randrange(len(value))
        before, item, after = value[:index], value[index], value[index + 1 :]
        match rnd.randrange(8):
            case 0:
                return [*before, *after]
            case 1:
                return [*value, item]
        return [*before, distort(item, rnd), *after]
    return rnd.choice(_STRANGE)
