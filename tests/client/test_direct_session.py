"""Connections of our own: when they are kept, when they are dropped, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kopf._client.http.direct_session import KEEPALIVE_TIMEOUT, DirectSession
from kopf._client.http.response_parser import ResponseParser
from kopf._client.http.server_address import parse_server
from kopf._client.http.transport import (
    ConnectTimeoutError,
    DisconnectedError,
    Limits,
    SilenceError,
    TransportError,
    UnreachableError,
    read_body,
)
from tests.authorities import Authority
from tests.client.raw_server import (
    OK,
    PATIENT,
    RawServer,
    answer,
    answer_and_close,
    echo,
    fetch,
    opened,
    read_request,
)


async def until_idle(session: DirectSession, count: int) -> None:
    """Wait until so many connections are open; all others are gone."""
    while len(session._wires) != count:
        await asyncio.sleep(0.001)


# ------------------------------------------------------------------ kept connections


@pytest.mark.loops
async def test_connections_are_used_again() -> None:
    server = RawServer(echo)
    async with server.serve(), opened(server) as session:
        for number in range(20):
            assert await fetch(session, f"/{number}", "PATCH", b"x" * number) == f"/{number}".encode()
        assert server.accepted == 1


@pytest.mark.loops
async def test_connections_are_not_used_again_if_the_server_says_so() -> None:
    response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    server = RawServer(answer(response, OK))
    async with server.serve(), opened(server) as session:
        assert await fetch(session) == b"{}"
        assert await fetch(session) == b"{}"
        assert server.accepted == 2


@pytest.mark.loops
async def test_bodies_that_are_not_read_to_their_end() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500
    server = RawServer(answer(half), echo)
    async with server.serve(), opened(server) as session:
        async with session.request("GET", "/x", None, None, PATIENT) as response:
            assert response.status == 200
        assert await fetch(session, "/y") == b"/y"
        await until_idle(session, 1)


@pytest.mark.loops
async def test_many_requests_at_once() -> None:
    server = RawServer(echo)
    async with server.serve(), opened(server) as session:
        targets = [f"/{number}" for number in range(100)]
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(fetch(session, target, "PATCH", b"{}", Limits())) for target in targets]
            assert [task.result().decode() for task in tasks] == targets


@pytest.mark.fastforward
async def test_unused_connections_are_dropped_in_time() -> None:
    server = RawServer(echo)
    async with server.serve(), opened(server) as session:
        await fetch(session)
        await asyncio.sleep(KEEPALIVE_TIMEOUT - 1)
        await fetch(session)
        assert server.accepted == 1
        await asyncio.sleep(KEEPALIVE_TIMEOUT - 1)
        assert len(session._wires) == 1
        await asyncio.sleep(2)
        assert not session._wires
        await fetch(session)
        assert server.accepted == 2


# ------------------------------------------------------------------ closed by the server


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.loops
async def test_connections_closed_while_they_are_unused(method: str) -> None:
    server = RawServer(answer_and_close(OK))
    async with server.serve(), opened(server) as session:
        for _ in range(3):
            await fetch(session, method=method, body=b"{}")
            await until_idle(session, 0)


@pytest.mark.parametrize(
    ("method", "is_repeated"), [("GET", True), ("DELETE", True), ("PATCH", False), ("POST", False)]
)
@pytest.mark.parametrize("is_reset", [True, False])
@pytest.mark.loops
async def test_connections_closed_at_the_moment_of_a_request(method: str, is_repeated: bool, is_reset: bool) -> None:
    """Whether a patch was applied, is unknown: it is never repeated here."""
    seen = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        seen += 1
        if is_reset:
            writer.transport.abort()

    server = RawServer(play, echo)
    async with server.serve(), opened(server) as session:
        await fetch(session)
        if is_repeated:
            assert await fetch(session, "/y", method) == b"/y"
        else:
            with pytest.raises(DisconnectedError):
                await fetch(session, "/y", method, b"{}")
        assert seen == 1
        assert server.accepted == 1 + is_repeated


@pytest.mark.loops
async def test_new_connections_are_not_tried_twice() -> None:
    server = RawServer(answer_and_close(b""))
    async with server.serve(), opened(server) as session:
        with pytest.raises(DisconnectedError, match=r"^Server disconnected$"):
            await fetch(session)
        assert server.accepted == 1


# ------------------------------------------------------------------ cancellations


@pytest.mark.parametrize("is_secure", [False, True])
@pytest.mark.loops
async def test_cancelled_at_any_moment(is_secure: bool) -> None:
    """After each turn of the event loop: in the handshake, in a half-sent body, in a half-read response."""
    authority = Authority()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            target = head.split(b" ")[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(target) * 2))
            for _ in range(2):
                await asyncio.sleep(0)
                writer.write(target)
                await writer.drain()

    server = RawServer(slow)
    context = ssl.create_default_context(cadata=authority.pem.decode()) if is_secure else None
    serving = server.serve(authority.make_server_context("127.0.0.1") if is_secure else None)
    async with serving, opened(server, context) as session:
        turns = 0
        while True:
            task = asyncio.create_task(fetch(session, f"/{turns}", "PATCH", bytes(2**20)))
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.done():
                assert task.result() == f"/{turns}".encode() * 2
                break
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if turns % 5 == 0:
                assert await fetch(session, "/good", "PATCH", b"{}") == b"/good" * 2
            turns += 1
        assert turns > 5
        assert len(session._idle) <= len(session._wires)


@pytest.mark.loops
async def test_sessions_closed_with_requests_underway() -> None:
    server = RawServer(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}"))
    async with server.serve():
        async with opened(server) as session:
            task = asyncio.create_task(fetch(session))
            await until_idle(session, 1)
        with pytest.raises(DisconnectedError):
            await task
        with pytest.raises(TransportError, match="is closed"):
            await fetch(session)


# ------------------------------------------------------------------ streams


@pytest.mark.loops
async def test_streams_take_no_more_memory_than_needed() -> None:
    """The server waits for those who are slow to read."""
    sent = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while sent < 2**26:
            writer.write(b"10000\r\n" + bytes(2**16) + b"\r\n")
            sent += 2**16
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    server = RawServer(play)
    async with server.serve(), opened(server) as session:
        async with session.request("GET", "/x", None, None, PATIENT) as response:
            size, before = 0, -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 2**25  # as much as the buffers of the system take
            while chunk := await response.read_chunk():
                assert len(chunk) < 2**20
                size += len(chunk)
        assert size == sent == 2**26


@pytest.mark.loops
async def test_silence() -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await reader.read()

    server = RawServer(play)
    limits = Limits(inactivity=0.2)
    async with server.serve(), opened(server) as session, session.request("GET", "/", None, None, limits) as slow:
        assert await slow.read_chunk() == b"{}"
        with pytest.raises(SilenceError, match="Timeout"):
            await slow.read_chunk()


@pytest.mark.fastforward
async def test_silence_of_those_who_are_not_read_is_not_theirs() -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
        for _ in range(2**10):
            writer.write(bytes(2**16))
            await writer.drain()

    server = RawServer(play)
    limits = Limits(inactivity=10)
    async with server.serve(), opened(server) as session, session.request("GET", "/x", None, None, limits) as response:
        await asyncio.sleep(100)
        assert len(await read_body(response)) == 2**26


# ------------------------------------------------------------------ connecting


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """Open a port that does not take any connections: its queue is full."""
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(deaf.getsockname())
        yield deaf.getsockname()[1]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse connections when the queue is full")
@pytest.mark.loops
async def test_time_limits_of_connecting() -> None:
    with deaf_port() as port:
        session = DirectSession(parse_server(f"http://127.0.0.1:{port}"), {}, None)
        with pytest.raises(ConnectTimeoutError, match=f"Connection timeout to host http://127.0.0.1:{port}"):
            await fetch(session, limits=Limits(total=20, connect=0.1))
        with pytest.raises(TimeoutError) as info:
            await fetch(session, limits=Limits(total=0.1, connect=20))
        assert not isinstance(info.value, TransportError)
        await session.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have only one address of the loopback")
@pytest.mark.parametrize("is_deaf", [False, True])
@pytest.mark.loops
async def test_other_addresses_are_tried(monkeypatch: pytest.MonkeyPatch, is_deaf: bool) -> None:
    server = RawServer(echo)
    async with server.serve(), contextlib.AsyncExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        bad = stack.enter_context(deaf_port()) if is_deaf else 1

        loop = asyncio.get_running_loop()
        really_resolve = type(loop).getaddrinfo

        async def resolve(self: Any, host: str, number: int, **kwargs: Any) -> Any:
            if host != "kubernetes.internal":  # uvloop resolves addresses, too
                return await really_resolve(self, host, number, **kwargs)
            return [
                (family, socket.SOCK_STREAM, 6, "", address)
                for family, address in [
                    (socket.AF_INET, ("127.0.0.1", bad)),
                    (socket.AF_INET, ("127.0.0.2", 1)),
                    (socket.AF_INET, ("127.0.0.1", port)),
                ]
            ]

        monkeypatch.setattr(type(loop), "getaddrinfo", resolve)
        session = DirectSession(parse_server("http://kubernetes.internal"), {}, None)
        assert await fetch(session) == b"/x"
        for turns in range(20):
            other = DirectSession(parse_server("http://kubernetes.internal"), {}, None)
            task = asyncio.create_task(fetch(other))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await other.close()
        await session.close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://127.0.0.1:1", r"Cannot connect to host 127.0.0.1:1 \[.*refused|Connect call failed"),
        ("https://[::1]:1", r"Cannot connect to host ::1:1 "),
        ("http://nowhere.invalid", "Cannot connect to host nowhere.invalid:80"),
        (f"http://{'x' * 70}.invalid", "Cannot connect to host x*.invalid"),
    ],
)
@pytest.mark.loops
async def test_servers_that_are_not_there(url: str, text: str) -> None:
    session = DirectSession(parse_server(url), {}, ssl.create_default_context())
    with pytest.raises(UnreachableError, match=text):
        await fetch(session)
    await session.close()


@pytest.mark.loops
async def test_no_files_are_left() -> None:
    """It is an error of one request, and not the end."""
    server = RawServer(echo)
    async with server.serve(), opened(server) as session:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(UnreachableError, match="Too many open files"):
                await fetch(session)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await fetch(session) == b"/x"


# ------------------------------------------------------------------ what is sent


@pytest.mark.loops
async def test_connections_are_freed_at_once() -> None:
    """Whether they are closed, refused, or broken: the collector of garbage comes rarely."""

    def count() -> int:
        return sum(isinstance(item, ResponseParser) for item in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500
        server = RawServer(answer_and_close(half), answer(b"no HTTP"), answer_and_close(OK))
        async with server.serve(), opened(server) as session:
            await until_idle(session, 0)
            before = count()
            for _ in range(2):
                with contextlib.suppress(TransportError):
                    await fetch(session)
            await fetch(session)
            await until_idle(session, 0)
            nowhere = DirectSession(parse_server("http://127.0.0.1:1"), {}, None)
            with contextlib.suppress(UnreachableError):
                await fetch(nowhere)
            await nowhere.close()
            await asyncio.sleep(0.01)  # the event loop holds what it has just called
            assert count() == before
    finally:
        gc.enable()


@pytest.mark.loops
async def test_requests_as_they_are() -> None:
    heads = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await read_request(reader))
            writer.write(OK)

    server = RawServer(play)
    async with server.serve():
        address = parse_server(server.url.replace("http://", "http://us%40er:p%2Fw@") + "/prefix/")
        session = DirectSession(address, {"Accept": "a", "X-One": "ñ"}, None)
        for method, body, headers in [
            ("GET", None, None),
            ("POST", b"{}", {"accept": "b"}),
            ("PATCH", None, {"X-Two": "2"}),
        ]:
            async with session.request(method, "/x?a=b", body, headers, PATIENT) as response:
                assert await read_body(response) == b"{}"
        session.set_headers({"Authorization": "Bearer t"})
        assert await fetch(session) == b"{}"
        await session.close()
    host = b"Host: " + server.url.removeprefix("http://").encode() + b"\r\n"
    basic = b"Authorization: Basic dXNAZXI6cC93\r\n"
    one = "X-One: ñ\r\n".encode()
    assert heads == [
        (b"GET /prefix/x?a=b HTTP/1.1\r\n" + host + basic + b"Accept: a\r\n" + one + b"\r\n", b""),
        (
            b"POST /prefix/x?a=b HTTP/1.1\r\nContent-Length: 2\r\n" + host + basic + one + b"accept: b\r\n\r\n",
            b"{}",
        ),
        (
            b"PATCH /prefix/x?a=b HTTP/1.1\r\nContent-Length: 0\r\n"
            + host + basic + b"Accept: a\r\n" + one + b"X-Two: 2\r\n\r\n",
            b"",
        ),
        (
            b"GET /prefix/x HTTP/1.1\r\n" + host + b"Authorization: Bearer t\r\nAccept: a\r\n" + one + b"\r\n",
            b"",
        ),
    ]  # fmt: skip


async def test_nothing_goes_without_tls_where_it_is_needed() -> None:
    with pytest.raises(ValueError, match="needs TLS"):
        DirectSession(parse_server("https://127.0.0.1:1"), {}, None)


async def test_what_cannot_be_sent() -> None:
    address = parse_server("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="'Authorization' has characters that cannot be sent") as info:
        DirectSession(address, {"Authorization": "Bearer S3cr3t\r\nX: y"}, None)
    assert "S3cr3t" not in str(info.value)
    session = DirectSession(address, {}, None)
    with pytest.raises(ValueError, match="characters that cannot be sent"):
        session.set_headers({"X Y": "z"})
    for target in ("/x y", "/x\r\nHost: other", "/ñ", ""):
        with pytest.raises(ValueError, match="is not quoted"):
            session.request("GET", target, None, None, PATIENT)
    with pytest.raises(ValueError, match="characters that cannot be sent"):
        session.request("GET", "/x", None, {"X": "\0"}, PATIENT)


@pytest.mark.parametrize(
    ("url", "host", "port", "authority"),
    [
        ("https://host", "host", 443, "host"),
        ("HTTPS://Host:443/", "host", 443, "host"),
        ("http://host:6443", "host", 6443, "host:6443"),
        ("https://[::1]:6443", "::1", 6443, "[::1]:6443"),
        ("https://[::1]", "::1", 443, "[::1]"),
        ("https://bücher.example", "xn--bcher-kva.example", 443, "xn--bcher-kva.example"),
    ],
)
def test_addresses(url: str, host: str, port: int, authority: str) -> None:
    address = parse_server(url)
    assert (address.host, address.port, address.authority, address.path) == (host, port, authority, "")


@pytest.mark.parametrize(
    "url",
    [
        "host",
        "host:6443",
        "\x01https://host",
        "https://host\x7f",
        "ftp://host",
        "http://",
        "http://host:x",
        "http://u:S3cr3t/x@host",
        "http://h ost",
        "http://[::1",
    ],
)
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="is not a proper URL of http") as info:
        parse_server(url)
    assert "S3cr3t" not in str(info.value)
