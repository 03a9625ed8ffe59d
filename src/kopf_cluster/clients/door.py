"""
The way into a running server from any thread and any event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from kopf_cluster.clients.operations import Operation
from kopf_cluster.requests import User
from kopf_cluster.sessions import Unresolved
from kopf_cluster.store.storage import Closed

T = TypeVar("T")


class Host(Protocol):
    """A running server."""

    async def serve(self, user: User, operation: Operation[T], *, admission: bool = True) -> T: ...

    def serve_at_once(self, user: User, operation: Operation[T], *, admission: bool = True) -> T: ...


class Door:
    """Brings operations to the event loop of the server.

    * ``find``: gives the server that is running now, with its event loop, or raises an error if there is none.
    """

    def __init__(self, find: Callable[[], tuple[Host, asyncio.AbstractEventLoop]]) -> None:
        self._find = find

    async def do(self, user: User, operation: Operation[T], *, admission: bool = True) -> T:
        return await self.enter(lambda: self._serve(user, operation, admission=admission))

    def do_and_wait(self, user: User, operation: Operation[T], *, admission: bool = True) -> T:
        host, loop = self._find()
        if not _is_ours(loop):
            return self.enter_and_wait(lambda: self._serve(user, operation, admission=admission))
        try:
            return host.serve_at_once(user, operation, admission=admission)
        except Unresolved:
            raise RuntimeError(
                "a webhook has to be asked, which cannot be waited for in the event loop of the local cluster: "
                "call the same method of `cluster.aio` and await it, or apply with `admission=False`"
            ) from None

    async def _serve(self, user: User, operation: Operation[T], *, admission: bool) -> T:
        while True:
            host, _ = self._find()  # not before: by the time when this is done, it can be another one, restarted
            with contextlib.suppress(Closed):  # it was restarted while webhooks were asked: nothing is done yet
                return await host.serve(user, operation, admission=admission)

    async def enter(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work in the event loop of the server."""
        _, loop = self._find()
        if _current_loop() is loop:
            return await loop.create_task(work())  # with a context of its own
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    def enter_and_wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work there while this thread waits; it must be another thread."""
        _, loop = self._find()
        if _is_ours(loop):
            raise RuntimeError(
                "this cannot be waited for in the event loop of the local cluster: "
                "call the same method of `cluster.aio` and await it"
            )
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return future.result()
        finally:
            future.cancel()  # if it is this thread that is interrupted


def _is_ours(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it would be this thread that has to run the loop, now or later; an idle loop is run by nobody else."""
    return _current_loop() is loop or not loop.is_running()


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
