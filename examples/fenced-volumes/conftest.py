"""The storage is faked: requests can be on their way for long, as in a network that is cut off."""

import asyncio
import contextlib

import pytest
import storage


class FakeStorage:
    def __init__(self):
        self.sizes = {}
        self.tokens = {}
        self.refusals = []
        self.is_cut_off = False
        self.late = []

    async def get_size(self, name):
        return self.sizes.get(name)

    async def resize(self, name, size, token):
        if self.is_cut_off:
            self.late.append((name, size, token))
            await asyncio.Event().wait()  # the answer never comes
        self._resize(name, size, token)

    def deliver(self):
        """Let the late requests arrive."""
        for request in self.late:
            with contextlib.suppress(storage.StaleTokenError):
                self._resize(*request)

    def _resize(self, name, size, token):
        self._check(name, token)
        self.sizes[name] = size

    async def remove(self, name, token):
        self._check(name, token)
        self.sizes.pop(name, None)

    def _check(self, name, token):
        if token < self.tokens.get(name, 0):
            self.refusals.append((name, token))
            raise storage.StaleTokenError(name)
        self.tokens[name] = token


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    fake = FakeStorage()
    for name in ("get_size", "resize", "remove"):
        monkeypatch.setattr(storage, name, getattr(fake, name))
    return fake
