"""The limits of the servers, one by one: connections, descriptors, bytes, and lines of the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pathlib
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kopf._admission.servers.review_server import MAX_BODY, Limits, ReviewServer
from kopf._serving.limited_logs import RateLimitedLogger
from kopf._serving.listening import open_sockets
from kopf._values.reviews import EncodedReview, MalformedReviewError, parse_review
from tests.admission.reviewing import make_review
from tests.patience import PATIENCE, wait_until
from tests.ports import find_free_port

HEADERS = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class Reviewer:
    def __init__(self) -> None:
        self.current = 0
        self.allowed_to_finish = asyncio.Event()
        self.allowed_to_finish.set()

    async def __call__(self, request: Any, **_: Any) -> Any:
        self.current += 1
        try:
            await self.allowed_to_finish.wait()
        finally:
            self.current -= 1
        return {"response": {"uid": request["request"]["uid"], "allowed": True}}


class Client:
    """A connection whose client does everything by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        if not self.writer.is_closing():  # uvloop refuses to, while asyncio ignores it
            self.writer.write(data)

    def send_review(self) -> None:
        body = json.dumps(make_review()).encode()
        self.send(HEADERS + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def read_status(self) -> int:
        """Read the status of the response, or 0 if the connection is closed."""
        async with asyncio.timeout(PATIENCE):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return 0
            for line in head.splitlines():
                if line.lower().startswith(b"content-length:"):
                    await self.reader.readexactly(int(line.split(b":")[1]))
        return int(head.split()[1])

    @property
    def is_closed(self) -> bool:
        return self.reader.at_eof() or self.reader.exception() is not None


class Served:
    def __init__(self, port: int) -> None:
        self.port = port
        self._stack = contextlib.AsyncExitStack()

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._stack.callback(lambda: writer.transport.abort())  # keeps the writer alive
        return Client(reader, writer)

    async def close(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def serve(fn: Any, **limits: Any) -> AsyncIterator[Served]:
    endpoint = ReviewServer(fn, limits=Limits(**limits))
    sockets = open_sockets("127.0.0.1", 0)
    served = Served(sockets[0].getsockname()[1])
    try:
        endpoint.listen(sockets, None)
        yield served
    finally:
        await served.close()
        await endpoint.close(1)
        for sock in sockets:
            sock.close()


async def test_the_oldest_silent_connection_goes_first() -> None:
    async with serve(Reviewer(), max_connections=3) as served:
        silent = [await served.connect() for _ in range(3)]
        newcomer = await served.connect()
        newcomer.send_review()
        assert await newcomer.read_status() == 200
        await wait_until(lambda: silent[0].is_closed)
        assert not silent[1].is_closed
        assert not silent[2].is_closed


@pytest.mark.parametrize("most", [16, 40])
async def test_those_who_have_spoken_are_heard_before_others_come(most: int) -> None:
    body = json.dumps(make_review()).encode()
    request = HEADERS + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    async with serve(Reviewer(), max_connections=most) as served:
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(100)
            ]  # the server accepts none of them yet, as it is in the same thread
            for client in clients:
                client.sendall(request)
                client.settimeout(PATIENCE)
            answers = await asyncio.gather(*[asyncio.to_thread(client.recv, 12) for client in clients])
    assert answers == [b"HTTP/1.1 200"] * len(clients)


async def test_the_regular_clients_are_not_pushed_out_by_strangers() -> None:
    async with serve(Reviewer(), max_connections=6) as served:
        regular = await served.connect()
        regular.send_review()
        assert await regular.read_status() == 200
        for beginning in (b"", b"POST"):
            strangers = [await served.connect() for _ in range(20)]
            for stranger in strangers:
                stranger.send(beginning)
            await wait_until(lambda: sum(client.is_closed for client in strangers) >= 14)  # noqa: B023
        regular.send_review()
        assert await regular.read_status() == 200


async def test_the_strangers_are_not_locked_out_by_the_regular_clients() -> None:
    async with serve(Reviewer(), max_connections=6) as served:
        for _ in range(6):
            client = await served.connect()
            client.send_review()
            assert await client.read_status() == 200
        strangers = [await served.connect() for _ in range(2)]
        for stranger in strangers:
            stranger.send_review()
            assert await stranger.read_status() == 200


async def test_those_who_are_served_are_not_closed_and_others_wait() -> None:
    reviewer = Reviewer()
    reviewer.allowed_to_finish.clear()
    async with serve(reviewer, max_connections=2) as served:
        clients = [await served.connect() for _ in range(2)]
        for client in clients:
            client.send_review()
        await wait_until(lambda: reviewer.current == 2)
        newcomer = await served.connect()
        newcomer.send_review()
        reading = asyncio.create_task(newcomer.read_status())
        done, _ = await asyncio.wait([reading], timeout=0.3)
        assert not done
        reviewer.allowed_to_finish.set()
        assert [await client.read_status() for client in clients] == [200, 200]
        assert await reading == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        HEADERS + b"Content-Length: 2\r\n\r\n{}",
        HEADERS + b"Content-Length: 2\r\n\r\n{}" * 2,
        HEADERS + b"Content-Length: 100000000\r\n\r\n",
    ],
    ids=["method", "type", "content", "pipelined", "size"],
)
async def test_connections_are_closed_after_refusals(request_: bytes) -> None:
    async def refuse(request: Any, **_: Any) -> Any:
        raise MalformedReviewError("It is no good.")

    async with serve(refuse) as served:
        client = await served.connect()
        client.send(request_)
        assert await client.read_status() >= 400
        assert await client.read_status() == 0


async def test_refusals_are_not_logged_without_limits(caplog: pytest.LogCaptureFixture) -> None:
    async with serve(Reviewer()) as served, aiohttp.ClientSession() as session:
        for _ in range(100):
            async with session.get(f"http://127.0.0.1:{served.port}/") as response:
                assert response.status == 405
    assert 1 <= len([record for record in caplog.records if "is refused" in record.message]) <= 20


def test_what_is_not_logged_is_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    logger = RateLimitedLogger(logging.getLogger("x"), burst=2, interval=60)
    for n in range(5):
        logger.warning("this %s", n)
    logger.warning("that")
    now += 61
    logger.warning("this %s", 5)
    assert caplog.messages == ["this 0", "this 1", "that", "this 5 (And 3 more like this.)"]


async def test_slow_bodies_give_way_when_there_are_too_many_bytes() -> None:
    async with serve(Reviewer(), max_body=60_000, max_total=150_000) as served:
        slow = [await served.connect() for _ in range(10)]
        for client in slow:
            client.send(HEADERS + b"Content-Length: 50000\r\n\r\n" + b"x" * 40_000)
        await wait_until(lambda: sum(client.is_closed for client in slow) >= 7)
        honest = await served.connect()
        honest.send_review()
        assert await honest.read_status() == 200
        assert not slow[-1].is_closed


async def test_bodies_that_give_way_can_be_complete_by_then(caplog: pytest.LogCaptureFixture) -> None:
    """Their last bytes have come already, when they are to go because of what has come before those."""
    reviewer = Reviewer()
    with socket.socket() as slow, socket.socket() as fast:
        async with serve(reviewer, max_body=60_000, max_total=75_000) as served:
            for client in (slow, fast):
                client.connect(("127.0.0.1", served.port))
                client.settimeout(PATIENCE)
                client.sendall(HEADERS + b"Content-Length: 50000\r\n\r\n" + b"x" * 30_000)
                await asyncio.sleep(0.1)  # until it is there, usually; otherwise, there is nothing to be seen
            for client in (fast, slow):  # the server runs in the same thread, so it finds both at once
                client.sendall(b"x" * 20_000)
            answers = await asyncio.gather(asyncio.to_thread(fast.recv, 12), asyncio.to_thread(_receive, slow))
            honest = await served.connect()
            honest.send_review()
            assert await honest.read_status() == 200
    assert answers[0] == b"HTTP/1.1 400"  # it is no JSON
    assert answers[1] in (b"", b"HTTP/1.1 503")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _receive(client: socket.socket) -> bytes:
    try:
        return client.recv(12)
    except ConnectionError:
        return b""


async def test_there_are_only_so_many_bytes_for_complete_reviews() -> None:
    reviewer = Reviewer()
    reviewer.allowed_to_finish.clear()
    async with serve(reviewer, max_body=60_000, max_total=100_000) as served:
        body = json.dumps(make_review(padding="x" * 40_000)).encode()
        request = HEADERS + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        clients = [await served.connect() for _ in range(3)]
        for client in clients[:2]:
            client.send(request)
        await wait_until(lambda: reviewer.current == 2)
        clients[2].send(request)
        assert await clients[2].read_status() == 503
        reviewer.allowed_to_finish.set()
        assert [await client.read_status() for client in clients[:2]] == [200, 200]
        again = await served.connect()
        again.send(request)
        assert await again.read_status() == 200


@pytest.mark.parametrize("is_promised", [True, False])
async def test_anonymous_requests_of_16_mib_cost_little(is_promised: bool) -> None:
    """Whether the size is told at once or not: it is refused, and nobody else waits for it."""
    size, piece = 16 * 1024 * 1024, b'{"a":[' + b"[]," * 21845
    head = HEADERS + (f"Content-Length: {size}" if is_promised else "Transfer-Encoding: chunked").encode() + b"\r\n\r\n"
    async with serve(Reviewer()) as served:
        honest = await served.connect()
        huge = await served.connect()
        tracemalloc.start()
        try:
            huge.send(head)
            for _ in range(size // len(piece)):
                huge.send(piece if is_promised else b"%x\r\n%s\r\n" % (len(piece), piece))
                with contextlib.suppress(ConnectionError):  # it is closed by now
                    await huge.writer.drain()
                honest.send_review()
                started = time.thread_time()
                assert await honest.read_status() == 200
                assert time.thread_time() - started < 0.3
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert await huge.read_status() in (413, 0)  # 0 is if it went on sending after the answer
        await wait_until(lambda: huge.is_closed)
    assert peak < 2 * MAX_BODY


@pytest.mark.parametrize("item", [b"[]", b"{}", b'{"a":{}}', b"1"])
def test_large_reviews_are_not_decoded_in_vain(item: bytes) -> None:
    """Those for unknown resources cost nothing but their size."""
    items = b",".join([item] * (MAX_BODY // 2 // (len(item) + 1)))
    obj = b'{"metadata":{"name":"x"},"spec":[%s]}' % items
    review = make_review(new=None, old=None)
    review["request"]["object"] = review["request"]["oldObject"] = "HERE"
    body = json.dumps(review).encode().replace(b'"HERE"', obj)
    tracemalloc.start()
    try:
        request = parse_review(EncodedReview(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request.name == "obj"
    assert peak < MAX_BODY / 10


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "subResource"])
@pytest.mark.parametrize("value", ["a\nb", "a\x1b[31mb", "\0", "a\u2028b", "\x85", "x" * 2000, "tail\n"])
def test_names_that_forge_the_logs_are_refused(field: str, value: str) -> None:
    review = make_review()
    review["request"][field] = value
    with pytest.raises(MalformedReviewError) as caught:
        parse_review(review)
    assert value not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["system:controller:job", "имя", "a b", ""])
def test_unusual_names_are_accepted(name: str) -> None:
    assert parse_review(make_review(name=name)).name == name


EXHAUSTED = """
import asyncio, logging, os, resource, socket, sys
from kopf._serving.endpoints import Endpoint
from kopf._serving.threaded_server import ReadOnlyServer
from aiohttp import web

async def answer(request):
    return web.json_response({})

async def main(port):
    async with ReadOnlyServer(Endpoint("127.0.0.1", port, "/"), {"/": answer}, subject="the health"):
        while input() != "exit":
            taken = []
            try:
                while True:
                    taken.append(os.dup(0))
            except OSError:
                print("taken", flush=True)
            input()
            for descriptor in taken:
                os.close(descriptor)
            print("released", flush=True)

logging.basicConfig(level=logging.INFO)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
asyncio.run(main(int(sys.argv[1])))
"""


def test_when_others_have_taken_all_descriptors(tmp_path: pathlib.Path) -> None:
    """One line in the log; it goes on as soon as there are any."""
    port = find_free_port()
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", EXHAUSTED, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            bufsize=1,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("take\n")
        assert process.stdout.readline() == "taken\n"
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(PATIENCE)
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            deadline = time.monotonic() + PATIENCE
            while not log.read_bytes() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.5)  # it could have been logged many times by now
            process.stdin.write("release\n")
            assert process.stdout.readline() == "released\n"
            assert client.recv(100).startswith(b"HTTP/1.0 200 OK")
        process.stdin.write("exit\n")
        assert process.wait(PATIENCE) == 0
    lines = log.read_text().splitlines()
    assert len(lines) == 1, lines[:10]
    assert "The health server cannot accept connections for a moment: [Errno 24] Too many open files" in lines[0]
