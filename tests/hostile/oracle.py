"""
The oracle of all hostile inputs: another object is handled within a second, memory and descriptors return, the logs
stay small, and no secret is in them.

A second of a machine that is there for us, and as fast as usual: what our thread was ready to run, but had to wait for
a processor, is added (Linux counts that), and slow processors get more time; so it holds on busy and on slow machines,
and is not looser on others.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time

import psutil

from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE, get_slowness, get_starvation

SECRET = "S3cr3tS3cr3t"
_PROMPTNESS = 1.0

_MEMORY_NOISE = 100 * 2**20
"""What the process of the tests itself (the cluster, the histories, the fragments) can keep, in bytes."""


def get_promptness() -> float:
    """How soon another object is to be handled, in seconds."""
    return _PROMPTNESS * get_slowness()


class Oracle:
    """Looks at the operator while and after it gets hostile inputs."""

    def __init__(self, operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
        self._operator = operator
        self._kex = kex
        self._logs = logs
        self._calls = calls
        self._process = psutil.Process()
        self._files = self._memory = 0

    async def begin(self) -> None:
        """Remember how it is before the inputs; the operator must have handled something by then."""
        await self.check_promptness("before")
        gc.collect()
        self._files, self._memory = self._process.num_fds(), self._process.memory_info().rss

    async def check_promptness(self, name: str) -> None:
        """Another object is handled within a second. Its handler notes down its name in the journal."""
        started, starvation = time.monotonic(), get_starvation()
        await self._kex.create(name)
        async with asyncio.timeout(PATIENCE):
            await self._calls.wait(lambda items: name in items)
        spent = time.monotonic() - started
        assert spent < get_promptness() + (get_starvation() - starvation), f"{name!r} was handled in {spent:.3f} s"

    async def check(self, *, inputs: int, lines: float = 1, kept: int = 0) -> None:
        """
        See that all is as before. ``lines`` is how many messages an input may cause, ``kept`` is what the test itself
        keeps of every input, in bytes.
        """
        await self.check_promptness("after")
        assert self._operator.is_running
        gc.collect()
        assert self._process.num_fds() <= self._files + 10
        assert self._process.memory_info().rss <= self._memory + _MEMORY_NOISE + inputs * kept
        messages = self._logs.get_messages(level=logging.INFO)
        assert len(messages) <= 100 + inputs * lines
        assert max(map(len, messages)) < 5_000
        assert not any(SECRET in message for message in messages)
