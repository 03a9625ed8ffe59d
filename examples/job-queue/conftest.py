"""The broker is faked: neither a server nor its client library is needed for the tests."""

import asyncio
import contextlib
import dataclasses
import itertools
import sys

import pytest


@dataclasses.dataclass(frozen=True)
class Message:
    id: str
    text: str


class FakeBroker:
    """It is there instead of the module ``broker``. What is not acknowledged is delivered to the next subscriber."""

    def __init__(self):
        self.messages = []
        self.subscribers = 0
        self.is_down = False
        self._ids = itertools.count(1)
        self._arrivals = asyncio.Event()

    def send(self, text):
        self.messages.append(Message(f"1767225600000-{next(self._ids)}", text))
        self._arrivals.set()

    @contextlib.asynccontextmanager
    async def subscribe(self, queue, consumer):
        if self.is_down:
            raise ConnectionError("connection refused")
        self.subscribers += 1
        try:
            yield self
        finally:
            self.subscribers -= 1

    async def __aiter__(self):
        delivered = set()
        while True:
            self._arrivals.clear()
            for message in list(self.messages):
                if message not in delivered:
                    delivered.add(message)
                    yield message
            await self._arrivals.wait()

    async def acknowledge(self, message):
        self.messages.remove(message)


@pytest.fixture
def broker(monkeypatch):
    fake = FakeBroker()
    monkeypatch.setitem(sys.modules, "broker", fake)
    return fake
