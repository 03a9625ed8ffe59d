"""
Simulated processes: an operator in a simulation is started, stopped, killed, and started again, each time as a new one;
and how its calls of handlers get into the journal.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import hashlib
import logging
import re
import weakref
from collections.abc import Callable, Collection, Coroutine, Generator
from typing import Any, cast

import aiohttp

from kopf._client.auth.credentials import AiohttpSession, Credentials
from kopf._client.auth.vault import Vault
from kopf._client.http.connections import USER_AGENT
from kopf._controller.instruments import Execute, Instruments
from kopf._controller.memos import Memo
from kopf._controller.observer import Observers
from kopf._handlers.attempts import Attempt, Outcome, name_outcome, name_reason
from kopf._handlers.causes import ActivityCause, Cause, ResourceCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import Handler
from kopf._handlers.lifecycles import get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.signatures import check_registry
from kopf._operator.namespace_patterns import NamespacePattern, check_patterns
from kopf._operator.running import Operator, OperatorSetup
from kopf._replay.calls import locate
from kopf._settings.settings import OperatorSettings, copy_settings
from kopf._values.reasons import Activity
from kopf._values.records import replace
from kopf._virtual_time.journal import HandlerCall, Journal
from kopf._virtual_time.patience import SimulationError
from kopf._virtual_time.threaded_loop import thread_owner, thread_purpose
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop, make_numbered_task
from kopf_cluster import LocalCluster

_STARTUP = 3600
"""How long the operator may take until it is ready, in seconds of the virtual time; it retries what fails there."""
_EXIT = 3600
"""How long the operator may take to exit, in seconds of the virtual time."""
_CLEANUP_TURNS = 1000
"""For how many turns of the loop a killed operator may remain, until it is left alone."""
_CERTIFICATES = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
"""Certificates and keys: the cluster's (``kube-root-ca.crt``) are truly random, whatever the seed is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The things that every process begins with."""

    loop: VirtualTimeLoop
    cluster: LocalCluster
    registry: OperatorRegistry
    settings: OperatorSettings | Callable[[], OperatorSettings] | None
    namespaces: Collection[NamespacePattern]
    token: str
    journal: Journal
    name: str = ""
    """Which replica it is, if there are several."""
    context: contextvars.Context
    """Where it begins: nothing of the previous process is known there."""
    observers: Observers = dataclasses.field(default_factory=Observers)
    """Who is told of what happens in all processes."""


current_process = contextvars.ContextVar["SimulatedProcess | None"]("current_process", default=None)
"""In which process of the operator the code runs; none if it is the test's."""


class SimulatedProcess:
    """
    The operator as a process of its own, from its start to its end.

    It talks to the cluster in memory, by a network of its own: it can be cut off without anybody else being hurt.

    Large because so much can happen to a process.
    """

    def __init__(self, options: ProcessOptions, instruments: Instruments) -> None:
        self._options = options
        self._instruments = instruments
        self._settings = make_settings(options.settings)
        self._stopping = asyncio.Event()
        self.network = options.cluster.open_network()
        self.is_dead = False
        """Whether it was killed: nothing that it does afterwards may be visible."""
        self.is_frozen = False
        self._task: asyncio.Task[None] | None = None
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()

    @property
    def name(self) -> str:
        """Which replica it is, if there are several."""
        return self._options.name

    @property
    def url(self) -> str:
        """The address of the cluster."""
        return self._options.cluster.url

    @property
    def is_stuck(self) -> bool:
        """Whether it can do nothing, or nothing that others can see."""
        return self.is_frozen or self.network.is_cut

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to exit."""
        return self._stopping.is_set()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Start, and wait until it is ready; its error is raised if it fails."""
        ready = asyncio.Event()
        context = self._options.context.copy()
        context.run(current_process.set, self)
        context.run(thread_owner.set, self)
        self._task = self._options.loop.create_task(self._run(ready), name="operator", context=context)
        waiting = asyncio.create_task(ready.wait())
        try:
            done, _ = await asyncio.wait([self._task, waiting], timeout=_STARTUP, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done():
            await self._task
        elif not done:
            self.kill()
            await self.clean_up()
            latest = "\n".join(map(str, [*self._options.journal][-5:]))
            raise SimulationError(
                f"The operator is not ready in {_STARTUP} seconds after its start: see its startup handlers. "
                f"The journal ends with:\n{latest}"
            )

    async def stop(self) -> None:
        """Let it exit as it does on SIGTERM; its error is raised if it has failed, or if it does not exit."""
        self._stopping.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=_EXIT)
        if not done:
            self.kill()
            await self.clean_up()
            raise SimulationError(
                f"The operator does not exit in {_EXIT} seconds when told to: see its cleanup handlers and daemons."
            )
        await self._task

    def kill(self) -> None:
        """Cut it off from the cluster and from the journal at once; the caller must clean it up then."""
        self.is_dead = True
        self.network.sever()
        if self.is_frozen:
            self._cancel([task for task in self._tasks if not task.done()])  # what is held back, gets no further
            self.thaw()

    def freeze(self) -> None:
        """Let nothing of it run from now on, as on SIGSTOP."""
        self.is_frozen = True
        self._options.loop.freeze(self)

    def thaw(self) -> None:
        """Let it go on."""
        self.is_frozen = False
        self._options.loop.thaw(self)

    async def clean_up(self) -> None:
        """Get rid of what is left of a killed operator, with no time passing."""
        self._options.loop.abandon(self)
        for _ in range(_CLEANUP_TURNS):
            remaining = [task for task in self._tasks if not task.done()]
            if not remaining:
                break
            self._cancel(remaining)
            await asyncio.sleep(0)
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.exception()  # it is taken notice of: whatever it has ended with, it never happened

    def _cancel(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        for task in sorted(tasks, key=self._tasks.__getitem__):
            task.cancel()

    def track(self, task: asyncio.Task[Any]) -> None:
        """Remember a task of the operator: if it is killed, all of them end, in whatever state they are."""
        self._tasks[task] = len(self._tasks)

    def check(self) -> None:
        """Raise the error with which it has ended, if it has."""
        if self._task is not None and self._task.done() and not self.is_dead and not self._task.cancelled():
            self._task.result()

    async def _run(self, ready: asyncio.Event) -> None:
        check_registry(self._options.registry)
        vault = Vault(self._settings)
        session = self.make_session()
        credentials = AiohttpSession(
            server=self._options.cluster.url,
            aiohttp_session=cast(aiohttp.ClientSession, self.network.shorten(session)),  # as far as we use them
        )
        attempts = AttemptJournal(self, self._options.journal, credentials)
        given = self._instruments
        operator = Operator(
            OperatorSetup(
                registry=self._options.registry,
                settings=self._settings,
                lifecycle=get_default_lifecycle(),
                namespaces=check_patterns([*self._options.namespaces]),
                identity=self._options.name or "simulation",
                vault=vault,
                memo=Memo(),
                ready_flag=ready,
                endpoint=None,
                instruments=replace(given, interceptors=[attempts.intercept, *given.interceptors]),
                observers=self._options.observers,
            )
        )
        running = asyncio.create_task(operator.run(), name="process of the operator")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            running.cancel()
            try:
                await asyncio.gather(running, return_exceptions=True)
            finally:
                await session.close()
        if not running.cancelled():
            running.result()

    def make_session(self) -> aiohttp.ClientSession:
        """Open a session with the cluster as the operator; it ends with the process."""
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {self._options.token}",
            "User-Agent": USER_AGENT,
        }
        return aiohttp.ClientSession(connector=self.network.make_connector(), headers=headers)


class AttemptJournal:
    """
    Notes down all attempts when they end; see :data:`Interceptor`.

    :param credentials: what all logins bring, instead of their own: the connection in memory. They are called for what
        else they do: many configure the client libraries that the other handlers use.
    :param process: a dead one calls nothing, and what it does never happened.
    """

    def __init__(self, process: SimulatedProcess, journal: Journal, credentials: Credentials) -> None:
        self._process = process
        self._credentials = credentials
        self._journal = journal

    async def intercept(
        self, execute: Execute, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings
    ) -> Outcome:
        """Make the attempt."""
        if not self._is_alive():
            return Outcome(True)
        loop = asyncio.get_running_loop()
        began, digest = loop.time(), _make_digest(cause)
        outcome: Outcome | None = None
        token = thread_purpose.set(f"{handler.id!r} of {locate(cause)}".removesuffix(" of "))
        try:
            outcome = await execute(handler, cause, attempt, around)
            return Outcome(True, result=self._credentials) if _is_login(cause) else outcome
        finally:
            thread_purpose.reset(token)
            if self._is_alive() and not (_is_login(cause) and outcome is not None and outcome.exception is None):
                self._note(handler, cause, attempt, outcome, loop.time() - began, digest)

    def _is_alive(self) -> bool:
        return not self._process.is_dead

    def _note(
        self, handler: Handler, cause: Cause, attempt: Attempt, outcome: Outcome | None, duration: float, digest: str
    ) -> None:
        error = None if outcome is None else outcome.exception
        self._journal.add(
            HandlerCall(
                **locate(cause)._asdict(),
                time=self._journal.now,
                id=handler.id,
                reason=name_reason(handler, cause),
                retry=attempt.retry,
                duration=round(duration, 6),
                outcome=name_outcome(outcome),
                delay=None if outcome is None else outcome.delay,
                error="" if error is None else f"{type(error).__name__}: {error}".removesuffix(": "),
                digest=digest,
                replica=self._process.name,
            )
        )


def _is_login(cause: Cause) -> bool:
    return isinstance(cause, ActivityCause) and cause.activity == Activity.AUTHENTICATION


def _make_digest(cause: Cause) -> str:
    data = cause.body.object.raw if isinstance(cause, ResourceCause) else b""
    if b"-----BEGIN" in data:
        data = _CERTIFICATES.sub(b"", data)
    return hashlib.blake2b(data, digest_size=4).hexdigest()


def make_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
) -> asyncio.Task[Any]:
    """Make a task as such loops do, and let the operator know of it if it is the operator's."""
    task = make_numbered_task(loop, coro, **options)
    context: contextvars.Context | None = options.get("context")
    process = current_process.get() if context is None else context.get(current_process)
    if process is not None:
        process.track(task)
    return task


class SilencingFilter(logging.Filter):
    """Drops what is logged by the operators that are dead; tells which replica it is from, if there are several."""

    def filter(self, record: logging.LogRecord) -> bool:
        process = current_process.get()
        if process is not None:
            record.replica = process.name
        return process is None or not process.is_dead


def make_settings(source: OperatorSettings | Callable[[], OperatorSettings] | None) -> OperatorSettings:
    """Make the settings of one process: startup handlers change them, but not for the next process."""
    if source is None:
        return OperatorSettings()
    if not isinstance(source, OperatorSettings):
        return source()
    return copy_settings(source)
