"""The server of reviews: they come in, responses go out, and whatever else comes does no harm."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import yarl

import kopf
from kopf._admission.servers.identities import Identity
from kopf._admission.servers.review_server import Limits, ReviewServer
from kopf._admission.servers.tls_contexts import load_identity, make_context
from kopf._serving.listening import open_sockets
from kopf._values.reviews import MalformedReviewError, UnknownWebhookError, WebhookClientConfig, WebhookFn
from tests.admission.servers.serving import Reviewer, connect, make_review, send
from tests.patience import PATIENCE, wait_until

SECRET = "very-secret-value"


class Served:
    """A running server."""

    def __init__(self, server: ReviewServer, port: int) -> None:
        super().__init__()
        self.server = server
        self.port = port
        self.config: WebhookClientConfig = {"url": f"http://127.0.0.1:{port}"}

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@contextlib.asynccontextmanager
async def serve(
    fn: WebhookFn, context: ssl.SSLContext | None = None, path: str = "", **limits: Any
) -> AsyncIterator[Served]:
    server = ReviewServer(fn, path=path, limits=Limits(**limits))
    sockets = open_sockets("127.0.0.1", 0)
    try:
        server.listen(sockets, context)
        yield Served(server, sockets[0].getsockname()[1])
    finally:
        await server.close(5)
        for sock in sockets:
            sock.close()


@pytest.fixture
async def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
async def served(reviewer: Reviewer) -> AsyncIterator[Served]:
    async with serve(reviewer) as served:
        yield served


async def read_status(reader: asyncio.StreamReader) -> int:
    """Read the response to the end of the connection; give the status, or 0 if there is no response."""
    async with asyncio.timeout(PATIENCE):
        try:
            response = await reader.read()
        except ConnectionError:
            return 0
    return int(response.split(b" ", 2)[1]) if response else 0


# --- what comes to the function, and what goes back ---


async def test_the_payload_and_the_response(served: Served, reviewer: Reviewer) -> None:
    status, response = await send(served.config, make_review("abc"))
    assert status == 200
    assert response == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "abc", "allowed": True},
    }
    assert reviewer.calls[0]["request"] == make_review("abc")
    assert reviewer.calls[0]["sslpeer"] is None


@pytest.mark.parametrize(
    ("root", "path", "webhook"),
    [
        ("", "", None),
        ("", "/", None),
        ("", "/handler1", "handler1"),
        ("", "/handler1/", "handler1"),
        ("", "/parent/child", "parent/child"),
        ("", "/parent%2Fchild", "parent/child"),
        ("", "/fn/spec.field", "fn/spec.field"),
        ("", "/%D0%B8%D0%BC%D1%8F", "имя"),
        ("", "/handler1?timeout=10s", "handler1"),
        ("/root", "/root", None),
        ("/root", "/root/", None),
        ("/root", "/root/handler1", "handler1"),
        ("/a/b", "/a/b/handler1", "handler1"),
    ],
)
async def test_webhooks_are_in_the_path(root: str, path: str, webhook: str | None, reviewer: Reviewer) -> None:
    async with serve(reviewer, path=root) as served:
        url = yarl.URL(f"{served.config['url']}{path}", encoded=True)
        async with connect() as session, session.post(url, json=make_review()) as response:
            assert response.status == 200
    assert reviewer.calls[0]["webhook"] == webhook


async def test_headers_are_passed(served: Served, reviewer: Reviewer) -> None:
    await send(served.config, headers={"X-Something": "value", "Authorization": "Bearer abc"})
    headers = reviewer.calls[0]["headers"]
    assert headers["X-Something"] == "value"
    assert headers["authorization"] == "Bearer abc"  # in any case
    assert headers["Host"] == f"127.0.0.1:{served.port}"
    with pytest.raises(TypeError):
        headers["X-Something"] = "other"


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.example+json", 200),
        ("application/x-www-form-urlencoded", 415),  # what browsers send with no permission
        ("text/plain", 415),
        ("application/jsonx", 415),
    ],
)
async def test_only_documents_in_json_are_accepted(served: Served, content_type: str, expected: int) -> None:
    data = json.dumps(make_review()).encode()
    status, _ = await send(served.config, data=data, headers={"Content-Type": content_type})
    assert status == expected


async def test_chunked_bodies(served: Served, reviewer: Reviewer) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        data = json.dumps(make_review()).encode()
        for start in range(0, len(data), 100):
            yield data[start : start + 100]

    status, _ = await send(served.config, data=chunks())
    assert status == 200
    assert reviewer.calls[0]["request"] == make_review()


async def test_many_parallel_reviews(served: Served, reviewer: Reviewer) -> None:
    reviewer.allowed_to_finish.clear()
    async with connect() as session:
        tasks = [asyncio.create_task(send(served.config, make_review(str(n)), session=session)) for n in range(400)]
        await wait_until(lambda: len(reviewer.calls) >= len(tasks))
        reviewer.allowed_to_finish.set()
        outcomes = await asyncio.gather(*tasks)
    answers = [(status, response["response"]["uid"]) for status, response in outcomes]
    assert answers == [(200, str(n)) for n in range(400)]


# --- what is refused ---


@pytest.mark.parametrize(("path", "root"), [("/other", "/root"), ("/", "/root"), ("/rootless", "/root")])
async def test_other_paths_are_not_found(path: str, root: str, reviewer: Reviewer) -> None:
    async with serve(reviewer, path=root) as served:
        status, _ = await send(served.config, path=path)
    assert status == 404
    assert not reviewer.calls


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_are_refused(served: Served, reviewer: Reviewer, method: str) -> None:
    status, _ = await send(served.config, method=method)
    assert status == 405
    assert not reviewer.calls


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"a": NaN}',
        b"[]",
        b"null",
        b'"text"',
        b"123",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda data: repr(data[:10]),
)
async def test_what_is_not_a_document_is_refused(served: Served, reviewer: Reviewer, data: bytes) -> None:
    status, text = await send(served.config, data=data)
    assert status == 400
    assert "The request is not" in text
    assert not reviewer.calls


@pytest.mark.parametrize(("options", "expected"), [({"compress": "gzip"}, 400), ({"expect100": True}, 200)], ids=str)
async def test_compressed_bodies_are_refused(served: Served, options: dict[str, Any], expected: int) -> None:
    """API servers do not compress, and what is small compressed can be huge. Other expectations are met."""
    status, _ = await send(served.config, make_review(), **options)
    assert status == expected


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MalformedReviewError("It is wrong."), 400),
        (UnknownWebhookError("There is none."), 404),
    ],
)
async def test_refusals_by_the_operator(error: Exception, status: int, caplog: pytest.LogCaptureFixture) -> None:
    async def fn(*_: Any, **__: Any) -> Any:
        raise error

    async with serve(fn) as served:
        assert await send(served.config, make_review(SECRET)) == (status, f"{error}\n")
    assert str(error) in caplog.text
    assert "Traceback" not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError])
async def test_failures_of_the_operator(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    """Timeouts inside of it, too: they are not those of the client."""

    async def fn(*_: Any, **__: Any) -> Any:
        raise error("boo!")

    async with serve(fn) as served:
        status, text = await send(served.config, make_review(SECRET), path="/?timeout=10s")
        assert status == 500
        assert "boo" not in text
    assert "boo!" in caplog.text
    assert SECRET not in caplog.text


async def test_contents_are_not_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for data in [f'{{"token": "{SECRET}"', f'["{SECRET}"]', f"{SECRET}"]:
        status, text = await send(served.config, data=data.encode(), headers={"Authorization": f"Bearer {SECRET}"})
        assert status == 400
        assert SECRET not in text
    assert "is refused" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("how", ["declared", "chunked"])
async def test_large_bodies_are_refused(how: str, reviewer: Reviewer) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    async with serve(reviewer, max_body=50_000) as served:
        status, _ = await send(served.config, data=chunks() if how == "chunked" else b"x" * 100_000)
        assert status == 413
        status, _ = await send(served.config, data=json.dumps(make_review(padding="x" * 40_000)).encode())
        assert status == 200


async def test_the_largest_objects_are_accepted(served: Served) -> None:
    review = make_review(object={"data": "x" * 3_145_728}, oldObject={"data": "x" * 3_145_728})
    status, _ = await send(served.config, data=io.BytesIO(json.dumps(review).encode()))
    assert status == 200


# --- slow and broken clients ---


@pytest.mark.parametrize("beginning", [b"", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nX: "])
async def test_those_who_send_no_headers_are_disconnected(beginning: bytes, reviewer: Reviewer) -> None:
    async with serve(reviewer, opening_timeout=0.1) as served:
        reader, writer = await served.open()
        writer.write(beginning)
        assert await read_status(reader) == 0
        writer.close()


@pytest.mark.fastforward  # however long the handshake takes
@pytest.mark.parametrize("is_secure", [False, True])
async def test_those_who_are_silent_with_tls_are_disconnected(is_secure: bool, reviewer: Reviewer) -> None:
    """Either they do not even begin the handshake, or they are silent after it."""
    certificate, key = kopf.WebhookServer.build_certificate(["localhost"])
    context = make_context()
    load_identity(context, Identity(certificate, key))
    client = ssl.create_default_context(cadata=certificate.decode()) if is_secure else None
    async with serve(reviewer, context, opening_timeout=30) as served:
        server_hostname = "localhost" if is_secure else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, ssl=client, server_hostname=server_hostname
        )
        assert await read_status(reader) == 0
        writer.close()


async def test_those_who_drip_headers_are_disconnected(reviewer: Reviewer) -> None:
    async with serve(reviewer, opening_timeout=0.3) as served:
        reader, writer = await served.open()
        reading = asyncio.create_task(read_status(reader))
        writer.write(b"POST / HTTP/1.1\r\nX: ")
        while not reading.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert reading.result() == 0
        writer.close()


@pytest.mark.fastforward
async def test_those_who_are_quick_are_not_disconnected_later(reviewer: Reviewer) -> None:
    reviewer.allowed_to_finish.clear()
    async with serve(reviewer, opening_timeout=0.1) as served, connect() as session:
        sending = asyncio.create_task(send(served.config, session=session))
        await reviewer.started.wait()
        await asyncio.sleep(100)
        reviewer.allowed_to_finish.set()
        assert (await sending)[0] == 200


async def test_those_who_send_no_body_are_refused(reviewer: Reviewer) -> None:
    async with serve(reviewer, body_timeout=0.1) as served:
        reader, writer = await served.open()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert await read_status(reader) == 408
        writer.close()
    assert not reviewer.calls


async def test_those_who_leave_in_the_middle(
    served: Served, reviewer: Reviewer, caplog: pytest.LogCaptureFixture
) -> None:
    for data in [b"POST", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"]:
        _, writer = await served.open()
        writer.write(data)
        await writer.drain()
        writer.transport.abort()
    assert (await send(served.config))[0] == 200
    assert "Traceback" not in caplog.text
    assert len(reviewer.calls) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS where there is none
        b"\x00\x01\x02\x03\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        b"POST /%zz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"POST //\\[x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"POST http://[:x/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"X" * 100_000,
        b"POST / HTTP/1.1\r\n" + b"X-Header: x\r\n" * 10_000 + b"\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)
async def test_garbage_is_refused_quietly(served: Served, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await served.open()
    writer.write(garbage)
    writer.write_eof()
    assert await read_status(reader) in (0, 400, 415)  # parsers differ in what makes sense as a path
    writer.close()
    assert (await send(served.config))[0] == 200
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# --- time ---


@pytest.mark.fastforward  # however long it takes until it begins
async def test_the_handling_is_cancelled_when_the_client_does_not_wait(served: Served, reviewer: Reviewer) -> None:
    reviewer.allowed_to_finish.clear()
    async with asyncio.timeout(PATIENCE):
        status, text = await send(served.config, path="/handler1?timeout=10s")
    assert status == 504
    assert "10 seconds" in text
    assert reviewer.cancelled.is_set()


async def test_the_handling_is_cancelled_when_the_client_leaves(served: Served, reviewer: Reviewer) -> None:
    reviewer.allowed_to_finish.clear()
    sending = asyncio.create_task(send(served.config))
    async with asyncio.timeout(PATIENCE):
        await reviewer.started.wait()
        sending.cancel()
        await reviewer.cancelled.wait()
    await asyncio.wait([sending])


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        *((timeout, 200) for timeout in ("10s", "1m0s", "1h", "30", "soon", "")),
        *((timeout, 400) for timeout in ("9" * 20 + "h", "9" * 5000 + "h", "1.0" + "0" * 400 + "s")),
    ],
)
async def test_only_endless_timeouts_prevent_the_handling(served: Served, timeout: str, expected: int) -> None:
    status, _ = await send(served.config, path=f"/?timeout={timeout}")
    assert status == expected


# --- the end ---


@pytest.mark.fastforward
async def test_current_reviews_are_answered_before_the_end(served: Served, reviewer: Reviewer) -> None:
    reviewer.allowed_to_finish.clear()
    async with connect() as session:
        sending = [asyncio.create_task(send(served.config, make_review(str(n)), session=session)) for n in range(10)]
        await wait_until(lambda: len(reviewer.calls) >= len(sending))
        closing = asyncio.create_task(served.server.close(30))
        await asyncio.sleep(10)
        assert not closing.done()
        reviewer.allowed_to_finish.set()
        outcomes = await asyncio.gather(*sending)
        await closing
    assert [status for status, _ in outcomes] == [200] * 10


async def test_the_end_is_not_awaited_forever(served: Served, reviewer: Reviewer) -> None:
    reviewer.allowed_to_finish.clear()
    sending = asyncio.create_task(send(served.config))
    async with asyncio.timeout(PATIENCE):
        await reviewer.started.wait()
        await served.server.close(0.1)
        assert reviewer.cancelled.is_set()
    with pytest.raises(aiohttp.ClientError):
        await sending


async def test_idle_connections_do_not_hold_the_end(served: Served) -> None:
    async with connect() as session:
        await send(served.config, session=session)
        _, writer = await served.open()
        async with asyncio.timeout(PATIENCE):
            await served.server.close(10 * PATIENCE)
        writer.close()
