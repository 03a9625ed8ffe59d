"""
The replacements in a process while it has virtual time: the wall clock, the kubeconfig, ``time.sleep()``, threads of
``anyio``; and the guard that notices who sleeps in the real time nevertheless, in seconds, not in hours.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, SupportsFloat, SupportsIndex, TypeVar
from unittest import mock

from kopf._virtual_time.patience import Patience, SimulationError
from kopf._virtual_time.simulated_clock import SimulatedClock
from kopf._virtual_time.threaded_loop import ThreadedJob, VirtualEvent
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop

_T = TypeVar("_T")

_READING_ON_IMPORT = (
    "kubernetes.config",
    "kubernetes.config.kube_config",
    "kubernetes.aio.config",
    "kubernetes.aio.config.kube_config",
    "kubernetes_asyncio.config",
    "kubernetes_asyncio.config.kube_config",
)
"""The modules that remember ``KUBECONFIG`` as it was when they were imported: of an earlier test, or of none."""
_NAME = "KUBE_CONFIG_DEFAULT_LOCATION"
_LONGEST_SLEEP = 0.5
"""For how long a coroutine may block the loop by sleeping, in seconds: it may be a test's own small delay."""
_SIGNAL = getattr(signal, "SIGUSR2", None)
Report = Callable[[SimulationError], None]


@contextlib.contextmanager
def virtual_process(loop: VirtualTimeLoop, clock: SimulatedClock, kubeconfig: str, report: Report) -> Iterator[None]:
    """
    Let everybody in this process have the time of the loop, and no other cluster.

    :param report: is called in the thread of the loop with anything that blocks the loop or one of its threads.
    """
    loop.on_stuck = lambda problem: report(SimulationError(problem))
    with (
        clock.installed(),
        offering_kubeconfig(kubeconfig),
        sleeping_virtually(loop),
        asking_virtually(),
        running_as_jobs(loop),
        BlockingGuard(loop, report).watching(),
    ):
        yield


@contextlib.contextmanager
def offering_kubeconfig(path: str) -> Iterator[None]:
    """Let all clients in this process find the kubeconfig, those too that have looked for it on import."""
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = path
    try:
        with contextlib.ExitStack() as stack:
            for module in map(sys.modules.get, _READING_ON_IMPORT):
                if hasattr(module, _NAME):
                    stack.enter_context(mock.patch.object(module, _NAME, path))
            yield
    finally:
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before


@contextlib.contextmanager
def sleeping_virtually(loop: VirtualTimeLoop) -> Iterator[None]:
    """
    Let ``time.sleep()`` take the virtual time in the threads of synchronous handlers, and fail in coroutines.

    Modules that have imported the function itself (``from time import sleep``) bypass this: see `BlockingGuard`.
    """
    real_sleep, loop_thread = time.sleep, threading.get_ident()

    def sleep(seconds: SupportsFloat | SupportsIndex, /) -> None:
        seconds = float(seconds)
        job = ThreadedJob.current()
        if job is not None and job.loop.is_virtual:
            job.sleep(max(0.0, seconds))
            return
        if threading.get_ident() == loop_thread and seconds > _LONGEST_SLEEP and loop.is_running() and loop.is_virtual:
            raise SimulationError(
                f"time.sleep({seconds:g}) blocks the event loop, and so the whole operator: "
                "use `await asyncio.sleep()` in coroutines, or make the function synchronous."
            )
        real_sleep(seconds)

    with mock.patch.object(time, "sleep", sleep):
        yield


def asking_virtually() -> contextlib.AbstractContextManager[object]:
    """Let threads wait in the virtual time for coroutines in the loop, with ``asyncio.run_coroutine_threadsafe()``."""
    name = "run_coroutine_threadsafe"
    return mock.patch.object(asyncio, name, functools.partial(_run_threadsafe, asyncio.run_coroutine_threadsafe))


def _run_threadsafe(
    run: Callable[..., concurrent.futures.Future[_T]], coro: Coroutine[Any, Any, _T], loop: asyncio.AbstractEventLoop
) -> concurrent.futures.Future[_T]:
    """Let the loop go on while a thread waits for what it has asked for: otherwise, they wait for each other."""
    future, job = run(coro, loop), ThreadedJob.current()
    if job is None or job.loop is not loop or not job.loop.is_virtual:
        return future
    is_done, get_result = VirtualEvent(), future.result
    future.add_done_callback(lambda _: is_done.set())

    def result(timeout: float | None = None) -> _T:
        is_done.wait(timeout)
        return get_result(0)

    future.result = result  # type: ignore[method-assign]  # it is a plain attribute, of this one only
    return future


@contextlib.contextmanager
def running_as_jobs(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """
    Let ``anyio.to_thread.run_sync()`` run functions in the threads of the loop, if the library is imported.

    Its own threads are known to nobody: the loop would take their work for waiting, and jump over hours.
    """
    module: Any = sys.modules.get("anyio.to_thread")
    if module is None:
        yield
        return
    real_run_sync = module.run_sync

    async def run_sync(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if asyncio.get_running_loop() is not loop:
            return await real_run_sync(func, *args, **options)
        context = contextvars.copy_context()
        return await loop.run_in_executor(None, functools.partial(context.run, func, *args))

    with mock.patch.object(module, "run_sync", run_sync):
        yield


class BlockingGuard:
    """
    Watches from a thread of its own if the loop is blocked, and interrupts what blocks it.

    It may be blocked for as long as its threads may work: see the patience of the loop.

    :param report: who is told of the problem, in the thread of the loop.
    """

    def __init__(self, loop: VirtualTimeLoop, report: Report) -> None:
        self._loop = loop
        self._report = report
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch as long as the context lasts. Only the main thread can be interrupted when it blocks."""
        can_interrupt = _SIGNAL is not None and threading.current_thread() is threading.main_thread()
        before = signal.signal(_SIGNAL, self._interrupt) if _SIGNAL is not None and can_interrupt else None
        thread = threading.Thread(target=self._watch, args=(can_interrupt,), name="kopf-simulation-guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            if _SIGNAL is not None and can_interrupt:
                signal.signal(_SIGNAL, before)

    def _watch(self, can_interrupt: bool) -> None:
        beats, patience, pause = self._loop.beats, Patience(), min(1.0, self._loop.patience / 4)
        while not self._ended.wait(pause):
            if self._loop.beats != beats or self._loop.is_attending or not self._loop.is_running():
                beats = self._loop.beats
                patience.renew()
            elif patience.is_over(self._loop.patience, pause=pause):
                if _SIGNAL is not None and can_interrupt:
                    signal.pthread_kill(self._thread_id, _SIGNAL)
                else:
                    sys.stderr.write(self._explain(sys._current_frames().get(self._thread_id)))
                patience.renew()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        problem = SimulationError(self._explain(frame))
        self._report(problem)
        raise problem

    def _explain(self, frame: FrameType | None) -> str:
        stack = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else ""
        return (
            f"The event loop is blocked for {self._loop.patience:g} seconds of the real time, and so is the whole "
            f"operator. Use `await` in coroutines, or make the function synchronous. It is blocked here:\n{stack}"
        )
