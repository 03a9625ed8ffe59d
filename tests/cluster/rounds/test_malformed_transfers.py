"""
Requests that are malformed as HTTP, too large, or never finished: whatever comes, the server is as good as before.
"""

from __future__ import annotations

import random

import pytest

from tests.cluster.conftest import CONFIG_MAPS, MERGE
from tests.cluster.rounds import widgets
from tests.cluster.rounds.malformed import check_alive, check_refusal, encode, mutate
from tests.cluster.rounds.widgets import make_config_map
from tests.cluster.rounds.wire import Wire
from tests.hostile.inputs import COUNT

pytestmark = pytest.mark.usefixtures("objects")


def test_huge_bodies(wire: Wire) -> None:
    huge = b'{"a":"' + b"x" * (3 * 1024 * 1024 + 1) + b'"}'
    for method, target, content_type in (
        ("POST", CONFIG_MAPS, "application/json"),
        ("PUT", f"{CONFIG_MAPS}/one", "application/json"),
        ("PATCH", f"{widgets.PATH}/one", MERGE),
        ("DELETE", f"{CONFIG_MAPS}/one", "application/json"),
    ):
        answer = wire.request(method, target, huge, content_type)
        assert answer.status == 413, answer
        assert answer.json["reason"] == "RequestEntityTooLarge"
        check_refusal(answer)
        wire.close()
        check_alive(wire)
    head = wire.head("POST", CONFIG_MAPS, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    chunked = wire.exchange(head + chunk * 4 + b"0\r\n\r\n")
    assert chunked is None or chunked.status == 413


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\n{}\r\n0\r\n\r\n",
        b"-5\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}}\r\n0\r\n\r\n",
        b"ffffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"2\r\n{}",
        b"2 ; x\r\n{}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"2\n{}\n0\n\n",
        b"2\r\n{}\r\n",
        b"0\r\nTrailer: x\r\n\r\n",
        b"",
    ],
)
def test_broken_chunks(data: bytes, wire: Wire) -> None:
    head = wire.head("POST", CONFIG_MAPS, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    answer = wire.exchange(head + data, half_closed=True)
    assert answer is None or 400 <= answer.status < 500, answer
    wire.abandon(head + data)
    check_alive(wire)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"\x00" * 100,
        b"GET /api HT",
        b"GET\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_no_requests_at_all(data: bytes, wire: Wire) -> None:
    answer = wire.exchange(data, half_closed=True)
    assert answer is None or 400 <= answer.status < 500, answer
    check_alive(wire)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "-1"},
        {"Content-Length": "x"},
        {"Content-Length": "5, 6"},
        {"Content-Length": "99999999999999999999"},
        {"Transfer-Encoding": "nosuch"},
        {"Transfer-Encoding": "chunked, chunked"},
        {"Content-Encoding": "nosuch", "Content-Length": "0"},
        {"Content-Length": "2", "Transfer-Encoding": "chunked"},
        {"Content-Encoding": "gzip", "Content-Length": "2"},
        {"Expect": "nosuch", "Content-Length": "2"},
        {"Upgrade": "websocket", "Connection": "Upgrade", "Content-Length": "2"},
        {"X" * 9000: "x"},
        {"X-Long": "x" * 20_000},
        {"X-Null": "a\x00b"},
        {"bad header": "x"},
    ],
)
def test_broken_headers(headers: dict[str, str], wire: Wire) -> None:
    answer = wire.exchange(wire.head("POST", CONFIG_MAPS, headers) + b"{}", half_closed=True)
    assert answer is None or 400 <= answer.status < 500, answer
    check_alive(wire)


def test_connections_broken_anywhere(wire: Wire) -> None:
    body = encode(make_config_map("two"))
    request = (
        wire.head("POST", CONFIG_MAPS, {"Content-Type": "application/json", "Content-Length": str(len(body))}) + body
    )
    watch = wire.head("GET", f"{CONFIG_MAPS}?watch=1")
    for size in range(0, len(request), 7):
        wire.abandon(request[:size])
    for size in range(0, len(watch), 29):
        wire.abandon(watch[:size])
    wire.abandon(watch)
    check_alive(wire)


def test_spoiled_bytes_on_the_wire(wire: Wire) -> None:
    body = encode(make_config_map("two"))
    request = (
        wire.head("POST", CONFIG_MAPS, {"Content-Type": "application/json", "Content-Length": str(len(body))}) + body
    )
    rnd = random.Random(0)
    for _ in range(COUNT):
        answer = wire.exchange(mutate(request, rnd), half_closed=True)
        assert answer is None or 200 <= answer.status < 500 or answer.status in (501, 505), answer
    check_alive(wire)
