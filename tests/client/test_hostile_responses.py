"""Responses that are wrong, too large, too slow, or cut: each is an error, at once, and never a part of another one."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import zlib

import pytest

from kopf._client.http import transport
from kopf._client.http.direct_session import DirectSession
from kopf._client.http.server_address import parse_server
from kopf._client.http.transport import DisconnectedError, Limits, ProtocolError, TransportError, read_body
from tests.authorities import Authority
from tests.client.raw_server import (
    OK,
    PATIENT,
    Play,
    RawServer,
    answer,
    answer_and_close,
    echo,
    fetch,
    opened,
    read_request,
)
from tests.patience import PATIENCE

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def pack(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=31)
    return packing.compress(data) + packing.flush()


def deflate_raw(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def gzipped(data: bytes) -> bytes:
    return HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data


# ------------------------------------------------------------------ good ones

GOOD = {
    "length": (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "nothing": (HEAD + b"Content-Length: 0\r\n\r\n", b""),
    "empty header": (HEAD + b"X-Empty:\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "chunks": (CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
    "extensions": (CHUNKED + b"2;a=b\r\nhe\r\n3;c\r\nllo\r\n0;d\r\n\r\n", b"hello"),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nContent-Encoding: br\r\n\r\n", b"hello"),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"{}"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
    "gzip": (gzipped(pack(b"hello" * 1000)), b"hello" * 1000),
    "gzip twice": (gzipped(pack(b"hel") + pack(b"") + pack(b"lo")), b"hello"),
    "gzip of nothing": (gzipped(b""), b""),
    "no encoding": (HEAD + b"Content-Encoding:\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    "deflate": (HEAD + b"Content-Encoding: deflate\r\nContent-Length: 13\r\n\r\n" + zlib.compress(b"hello"), b"hello"),
    "deflate with no wrapper": (
        HEAD + b"Content-Encoding: deflate\r\nContent-Length: 7\r\n\r\n" + deflate_raw(b"hello"),
        b"hello",
    ),
    "what is no encoding": (HEAD + b"Content-Encoding: UTF-8\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    "a folded header": (HEAD + b"A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    "bare line feeds": (OK.replace(b"\r\n", b"\n"), b"{}"),
    "one bare line feed": (HEAD + b"A: b\nContent-Length: 2\r\n\r\n{}", b"{}"),
    "identity and chunks": (CHUNKED.replace(b"chunked", b"identity, chunked") + b"2\r\n{}\r\n0\r\n\r\n", b"{}"),
    "identity and chunks in two headers": (
        CHUNKED.replace(b"chunked", b"identity\r\nTransfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
        b"{}",
    ),
    "spaces behind the sizes of chunks": (CHUNKED + b"2  \r\n{}\r\n0 \r\n\r\n", b"{}"),
    "identity": (HEAD + b"Content-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
}


def drip(response: bytes) -> Play:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for number in range(len(response)):
                writer.write(response[number : number + 1])
                await writer.drain()
                await asyncio.sleep(0)

    return play


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.loops
async def test_good_ones_in_one_piece_and_byte_by_byte(name: str) -> None:
    response, expected = GOOD[name]

    for play in (answer(response), drip(response)):
        server = RawServer(play, play)
        async with server.serve(), opened(server) as session:
            assert await fetch(session) == expected


@pytest.mark.parametrize("stray", [OK.replace(b"{}", b"[]"), b"x"])
@pytest.mark.loops
async def test_what_comes_behind_a_response_is_not_the_next_one(stray: bytes) -> None:
    """Even if it comes in the very last moment, so that nobody has read it before the next request."""
    to_send = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        session = DirectSession(parse_server(f"http://127.0.0.1:{listener.getsockname()[1]}"), {}, None)

        def serve() -> None:
            first, _ = listener.accept()
            with first:
                first.recv(10000)
                first.sendall(OK)
                to_send.wait(PATIENCE)
                first.sendall(stray)
                is_sent.set()
                second, _ = listener.accept()
                with second:
                    second.recv(10000)
                    second.sendall(OK.replace(b"{}", b"ok"))

        is_sent = threading.Event()
        serving = asyncio.create_task(asyncio.to_thread(serve))
        assert await fetch(session) == b"{}"
        to_send.set()
        is_sent.wait(PATIENCE)  # the event loop cannot read it meanwhile
        assert await fetch(session, method="PATCH", body=b"{}") == b"ok"
        await session.close()
        await serving


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.0 200 OK\r\n", HEAD + b"Transfer-Encoding: identity\r\n"])
@pytest.mark.loops
async def test_bodies_until_the_end_of_the_connection(head: bytes) -> None:
    server = RawServer(answer_and_close(head + b"\r\n" + b"x" * 2**20), echo)
    async with server.serve(), opened(server) as session:
        assert await fetch(session) == b"x" * 2**20
        assert await fetch(session, "/y") == b"/y"


# ------------------------------------------------------------------ bad ones

BAD = {
    "both lengths": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + b"5\r\nhello\r\n0\r\n\r\n",
    "both lengths, the other way": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a negative length": HEAD + b"Content-Length: -2\r\n\r\n{}",
    "a signed length": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "a huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "a bare return": HEAD + b"A: b\rContent-Length: 2\r\n\r\n{}",
    "a space before the colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "no colon": HEAD + b"Content-Length 2\r\n\r\n{}",
    "a zero byte": HEAD + b"A: \x00\r\nContent-Length: 2\r\n\r\n{}",
    "another version": OK.replace(b"1.1", b"3.7"),
    "no HTTP": b"220 mail.example.com ESMTP\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x50",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
    "another protocol, unnamed": b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + OK,
    "an unknown transfer encoding": HEAD + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "an encoding in chunks": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks twice in one header": CHUNKED.replace(b"chunked", b"chunked, chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a size of a chunk": CHUNKED + b"x\r\n{}\r\n0\r\n\r\n",
    "a huge chunk": CHUNKED + b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk with no end": CHUNKED + b"2\r\n{}0\r\n\r\n",
    "an interim response with a body": b"HTTP/1.1 103 Hints\r\nContent-Length: 2\r\n\r\n{}" + OK,
    "an unknown encoding": HEAD + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
    "no gzip": gzipped(b"hello"),
    "half a gzip": gzipped(pack(b"hello" * 1000)[:-9]),
    "a broken gzip": gzipped(pack(b"hello" * 1000)[:-5] + b"xxxxx"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.loops
async def test_bad_ones(name: str) -> None:
    server = RawServer(answer(BAD[name]), echo)
    async with server.serve(), opened(server) as session:
        with pytest.raises(ProtocolError, match=r"speak proper HTTP|protocol|encoding|decompressed|no end|body where"):
            await fetch(session, method="PATCH", body=b"{}")
        assert await fetch(session, "/y") == b"/y"
    assert server.accepted == 2


FLOODS = {
    "headers": (HEAD, b"X-Header: x\r\n"),
    "a header": (HEAD + b"X-Header: ", b"x" * 1000),
    "a name": (HEAD, b"x" * 1000),
    "a status": (b"HTTP/1.1 200 ", b"x" * 1000),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim responses with headers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
    "an extension": (CHUNKED + b"2;", b"x" * 1000),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-Trailer: x\r\n"),
    "line breaks": (b"", b"\r\n"),
}


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.loops
async def test_floods(name: str) -> None:
    beginning, more = FLOODS[name]
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(beginning)
        while True:
            writer.write(more * 20)
            sent += len(more) * 20
            await writer.drain()

    server = RawServer(flood, echo)
    async with server.serve(), opened(server) as session:
        with pytest.raises(ProtocolError, match="headers of the response are too large"):
            await fetch(session)
        assert await fetch(session, "/y") == b"/y"
    assert sent < 2**25  # as much as the buffers of the system take


@pytest.mark.loops
async def test_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_BODY", 10 * 2**20)

    server = RawServer(answer(gzipped(pack(bytes(2**26)))), answer(gzipped(pack(b"x" * 9 * 2**20))))
    async with server.serve(), opened(server) as session:
        with pytest.raises(ProtocolError, match="is larger than"):
            await fetch(session)
        assert await fetch(session) == b"x" * 9 * 2**20


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked", b"Content-Length: 99999999999", b"A: b"], ids=repr)
@pytest.mark.loops
async def test_endless_bodies(monkeypatch: pytest.MonkeyPatch, framing: bytes) -> None:
    monkeypatch.setattr(transport, "MAX_BODY", 2**20)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + framing + b"\r\n\r\n")
        while True:
            writer.write(b"2000\r\n" + bytes(0x2000) + b"\r\n")
            await writer.drain()

    server = RawServer(flood, echo)
    async with server.serve(), opened(server) as session:
        with pytest.raises(ProtocolError, match="body of the response is larger than 1048576 bytes"):
            await fetch(session)
        assert await fetch(session, "/y") == b"/y"


# ------------------------------------------------------------------ cut ones

CUT = {name: GOOD[name][0] for name in ("chunks", "trailers", "interim", "gzip")}


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(("name", "is_secure"), [*((name, False) for name in CUT), ("chunks", True)])
@pytest.mark.loops
async def test_cut_at_every_byte(name: str, is_secure: bool, is_reset: bool) -> None:
    authority, response = Authority(), CUT[name]
    sizes = iter(range(len(response)))

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response[: next(sizes)])
        await writer.drain()
        if is_reset:
            await asyncio.sleep(0.001)  # so that some of it is read
            writer.transport.abort()

    server = RawServer(cut)
    context = ssl.create_default_context(cadata=authority.pem.decode()) if is_secure else None
    serving = server.serve(authority.make_server_context("127.0.0.1") if is_secure else None)
    async with serving, opened(server, context) as session:
        for _ in response:
            with pytest.raises(DisconnectedError, match=r"disconnected|not complete|reset"):
                await fetch(session, method="PATCH", body=b"{}")
    assert server.accepted == len(response)


@pytest.mark.parametrize("is_proper", [True, False])
@pytest.mark.loops
async def test_tls_cut_without_a_goodbye(is_proper: bool) -> None:
    """Otherwise, whoever is on the way could make any body shorter if it has no length."""
    authority = Authority()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"\r\n{}")
        await writer.drain()
        if not is_proper:
            with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as sock:
                sock.shutdown(socket.SHUT_WR)
            await reader.read()

    server = RawServer(cut)
    context = ssl.create_default_context(cadata=authority.pem.decode())
    async with server.serve(authority.make_server_context("127.0.0.1")), opened(server, context) as session:
        if is_proper:
            assert await fetch(session) == b"{}"
        else:
            with pytest.raises(DisconnectedError, match="The response is not complete|Server disconnected"):
                await fetch(session)


# ------------------------------------------------------------------ slow ones


@pytest.mark.parametrize("beginning", [b"", HEAD, CHUNKED, CHUNKED + b"2\r\n{}"], ids=["0", "head", "headers", "body"])
@pytest.mark.loops
async def test_slow_drips_are_limited_by_the_deadline(beginning: bytes) -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(beginning)
        piece = b"1\r\nx\r\n" if CHUNKED in beginning else b"X: y\r\n" if beginning else b"\r\n"
        piece = b"\r\n" + piece if beginning.endswith(b"}") else piece
        while True:
            writer.write(piece)
            piece = piece.lstrip(b"\r\n") or piece
            await writer.drain()
            await asyncio.sleep(0.02)

    server = RawServer(play, echo)
    async with server.serve(), opened(server) as session:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(TimeoutError) as info:
                await fetch(session, limits=Limits(total=0.3))
        assert not isinstance(info.value, TransportError)
        assert await fetch(session, "/y") == b"/y"


# ------------------------------------------------------------------ surplus


@pytest.mark.parametrize("surplus", [OK, OK[:5], b"garbage", b"\x00", b"HTTP/1.1 500 Oops\r\n\r\n"])
@pytest.mark.parametrize("name", ["length", "chunks", "no content", "interim"])
@pytest.mark.loops
async def test_surplus_never_answers_the_next_request(name: str, surplus: bytes) -> None:
    response, expected = GOOD[name]

    server = RawServer(answer(response + surplus), echo)
    async with server.serve(), opened(server) as session:
        assert await fetch(session) == expected
        assert await fetch(session, "/y", "PATCH", b"{}") == b"/y"
    assert server.accepted == 2


@pytest.mark.loops
async def test_surplus_that_comes_later() -> None:
    is_answered = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await is_answered.wait()
        writer.write(OK)
        await reader.read()
        is_dropped.set()

    is_dropped = asyncio.Event()

    server = RawServer(play, echo)
    async with server.serve(), opened(server) as session:
        assert await fetch(session) == b"{}"
        is_answered.set()
        await asyncio.wait_for(is_dropped.wait(), PATIENCE)
        assert await fetch(session, "/y", "PATCH", b"{}") == b"/y"


# ------------------------------------------------------------------ early ones


@pytest.mark.parametrize(("is_closed", "is_secure"), [(False, False), (True, False), (False, True)])
@pytest.mark.loops
async def test_responses_before_the_request_is_sent_completely(is_closed: bool, is_secure: bool) -> None:
    """E.g. of a server to which the body is too large."""
    authority = Authority()
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}"

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # transports of streams can do it
        writer.write(refusal)
        await writer.drain()
        if is_closed:
            writer.write_eof()
        await is_over.wait()
        writer.transport.abort()

    is_over = asyncio.Event()
    server = RawServer(play, echo)
    context = ssl.create_default_context(cadata=authority.pem.decode()) if is_secure else None
    serving = server.serve(authority.make_server_context("127.0.0.1") if is_secure else None)
    async with serving, opened(server, context) as session:
        async with session.request("PATCH", "/x", bytes(2**26), None, PATIENT) as response:
            assert response.status == 413
            assert await read_body(response) == b"{}"
        assert await fetch(session, "/y") == b"/y"
        is_over.set()  # nobody needs to wait for the farewell
    assert server.accepted == 2
