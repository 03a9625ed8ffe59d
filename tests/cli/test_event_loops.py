from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kopf.cli.running import find_loop_factory, handle_loop_error

GOODBYE = "unable to perform operation on <TCPTransport closed=True reading=False 0x5>; the handler is closed"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = (find_loop_factory() or asyncio.new_event_loop)()
    yield loop
    loop.close()


async def connect(ours: socket.socket, *, closed: bool) -> asyncio.Transport:
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    if closed:
        transport.close()
    return transport


@pytest.mark.parametrize(
    ("closed", "error", "is_told"),
    [
        (True, RuntimeError(GOODBYE), False),
        (False, RuntimeError(GOODBYE), True),
        (True, RuntimeError("something else"), True),
        (True, ValueError(GOODBYE), True),
    ],
)
def test_goodbyes_of_broken_connections_are_no_errors(
    loop: asyncio.AbstractEventLoop,
    caplog: pytest.LogCaptureFixture,
    closed: bool,
    error: Exception,
    is_told: bool,
) -> None:
    caplog.set_level(logging.DEBUG, "kopf")
    ours, theirs = socket.socketpair()
    transport = loop.run_until_complete(connect(ours, closed=closed))
    context: dict[str, Any] = {
        "message": "Fatal error on SSL protocol",
        "exception": error,
        "transport": transport,
        "protocol": None,
    }
    handle_loop_error(loop, context)
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))
    theirs.close()
    assert bool([record for record in caplog.records if record.levelno == logging.ERROR]) is is_told
    assert bool([record for record in caplog.records if record.levelno == logging.DEBUG]) is not is_told


class ClosedByError(asyncio.Transport):
    """As in uvloop: it is closed, but does not know that."""

    def is_closing(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "<TCPTransport closed=True reading=False 0x55da275a98a0>"


def test_connections_that_are_closed_by_errors_are_over(
    loop: asyncio.AbstractEventLoop,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handle_loop_error(
        loop,
        {
            "message": "Fatal error on SSL protocol",
            "exception": RuntimeError(GOODBYE),
            "transport": ClosedByError(),
        },
    )
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]


def test_all_other_errors_are_told(loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("boom")

    loop.call_soon(fail)
    loop.run_until_complete(asyncio.sleep(0))
    [record] = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
