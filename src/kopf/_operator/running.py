"""
Running: the life of one operator, from the startup handlers to the cleanup handlers.

The order of the shutdown matters: first, nothing new is taken in; then, the current handlers finish; then, what they
have logged is posted; then, the cleanup handlers run; and the connections, which all these need, are closed last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

from kopf._client.api import APIClient
from kopf._client.errors import APIError
from kopf._client.vault import Vault
from kopf._handlers.lifecycles import LifeCycleFn, get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._operator.flags import Flag, raise_flag, wait_flag
from kopf._operator.login import Authenticator
from kopf._operator.observation import Observer
from kopf._operator.signals import stopping_by_signals
from kopf._reactor.activities import run_activity
from kopf._reactor.clock import Clock
from kopf._reactor.environment import Environment
from kopf._reactor.indexing import Gate, Indexers
from kopf._reactor.memos import Memo, Memos
from kopf._reactor.posting import EventPoster, posting
from kopf._settings.settings import OperatorSettings
from kopf._values import codec
from kopf._values.reasons import Activity

logger = logging.getLogger(__name__)

T = TypeVar("T")

_COMPARABLE_VERSIONS_SINCE = (1, 35)
_FLUSH_TIMEOUT = 2.0
"""How long the posting of the last events may hold the exit, in seconds."""


class Operator:
    """One running operator: what it consists of, and how it lives."""

    def __init__(
        self,
        *,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        namespaces: Collection[str] | None,
        vault: Vault,
        memo: Any,
        ready_flag: Flag | None,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._lifecycle = lifecycle
        self._namespaces = namespaces
        self._vault = vault
        self._memo = memo
        self._ready_flag = ready_flag
        self._api = APIClient(vault, settings)
        self._indexers = Indexers(registry.get_indexing())
        self._authenticator = Authenticator(vault, registry, settings, memo, self._indexers.indices)

    async def run(self) -> None:
        """Live until cancelled. Raises whatever makes it impossible to go on."""
        clock = Clock()
        poster = EventPoster(self._api, self._settings)
        with posting(poster):
            try:
                await self._run_activity(Activity.STARTUP)
                await self._work(poster, clock)
            finally:
                await self._shut_down()

    async def _run_activity(self, activity: Activity) -> None:
        handlers = self._registry.get_activities(activity)
        await run_activity(activity, handlers, settings=self._settings, memo=self._memo, indices=self._indexers.indices)

    async def _work(self, poster: EventPoster, clock: Clock) -> None:
        logger.info("Initial authentication has been initiated.")
        await self._authenticator.login()
        logger.info("Initial authentication has finished.")
        authenticating = asyncio.create_task(self._authenticator.run(), name="authenticator")
        helpers = [authenticating]
        try:
            env = await _either(self._make_environment(clock), authenticating)
            helpers.append(asyncio.create_task(poster.run(), name="poster of events"))
            observer = Observer(env, self._registry, self._namespaces)
            observing = asyncio.create_task(observer.run(), name="observer")
            if self._ready_flag is not None:
                raise_flag(self._ready_flag)
            try:
                await _fail_together([observing, *helpers])
            finally:
                await _cancel([observing])
                await observer.stop()
                await poster.flush(_FLUSH_TIMEOUT)
        finally:
            await _cancel(helpers)

    async def _make_environment(self, clock: Clock) -> Environment:
        return Environment(
            indexers=self._indexers,
            gate=Gate(),
            settings=self._settings,
            api=self._api,
            clock=clock,
            lifecycle=self._lifecycle,
            memos=Memos(self._memo),
            indices=self._indexers.indices,
            comparable_versions=await self._has_comparable_versions(),
        )

    async def _has_comparable_versions(self) -> bool:
        """See KEP-5504. If the version is unknown or forbidden to know, the strictest rules are followed."""
        try:
            version = codec.decode(await self._api.get("/version"))
            parsed = int(version["major"]), int(version["minor"].rstrip("+"))
        except (APIError, KeyError, ValueError, TypeError, AttributeError) as e:
            logger.warning("The version of the cluster is unknown, so it is treated as an old one: %s", e)
            return False
        return parsed >= _COMPARABLE_VERSIONS_SINCE

    async def _shut_down(self) -> None:
        try:
            await self._run_activity(Activity.CLEANUP)
        finally:
            await self._vault.close()
            self._settings.execution.release()


async def _fail_together(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait forever, until any of the tasks fails; they are not supposed to end."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        if (exc := task.exception()) is not None:
            raise _unwrap(exc)
    raise RuntimeError(f"These tasks of the operator have ended unexpectedly: {[task.get_name() for task in done]!r}")


async def _either(coro: Coroutine[Any, Any, T], guard: asyncio.Task[Any]) -> T:
    """Get the result of the coroutine, unless the guarding task fails earlier."""
    task = asyncio.create_task(coro)
    try:
        await asyncio.wait([task, guard], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await _fail_together([guard])
        return task.result()
    finally:
        await _cancel([task])


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _unwrap(exc: BaseException) -> BaseException:
    """Errors come in groups from where several tasks work together; usually, there is only one in the group."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


async def operator(
    *,
    lifecycle: LifeCycleFn | None = None,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    standalone: bool | None = None,
    clusterwide: bool = False,
    namespaces: Collection[str] = (),
    namespace: str | None = None,
    stop_flag: Flag | None = None,
    ready_flag: Flag | None = None,
    vault: Vault | None = None,
    memo: Any = None,
) -> None:
    """
    Run an operator in the current event loop until it is stopped.

    It is stopped by the ``stop_flag``, by cancelling the task, or, in the main thread, by SIGINT or SIGTERM; the second
    signal ends the whole process at once. ``ready_flag`` is raised when the operator begins to watch. Flags can be
    events or futures of either asyncio or threads.

    ``namespaces`` (or one ``namespace``) restrict the operator to those namespaces; ``clusterwide`` is for
    the whole cluster, which is also the default. All else has defaults as described in the documentation.

    Raises :class:`LoginError` if the cluster refuses the operator; :class:`ActivityError` if a startup handler fails;
    and other errors that make it impossible to go on.
    """
    settings = settings if settings is not None else OperatorSettings()
    if standalone is not None:
        settings.peering.standalone = standalone
    names = {*namespaces, *([] if namespace is None else [namespace])}
    settings.peering.clusterwide = not names
    running = Operator(
        registry=registry if registry is not None else get_default_registry(),
        settings=settings,
        lifecycle=lifecycle if lifecycle is not None else get_default_lifecycle(),
        namespaces=_check_namespaces(names, clusterwide) or None,
        vault=vault if vault is not None else Vault(settings),
        memo=memo if memo is not None else Memo(),
        ready_flag=ready_flag,
    )
    await _run_until_stopped(running, stop_flag)


def _check_namespaces(names: Collection[str], clusterwide: bool) -> list[str]:
    if names and clusterwide:
        raise ValueError("The operator can be either cluster-wide or restricted to namespaces, not both.")
    patterns = sorted(name for name in names if not name or set(name) & set("*?!,"))
    if patterns:
        raise ValueError(f"Patterns of namespaces are not supported yet; use exact names instead of {patterns!r}.")
    return sorted(names)


async def _run_until_stopped(running: Operator, stop_flag: Flag | None) -> None:
    stopped = asyncio.Event()
    tasks = [asyncio.create_task(running.run(), name="operator"), asyncio.create_task(stopped.wait())]
    if stop_flag is not None:
        tasks.append(asyncio.create_task(wait_flag(stop_flag), name="waiting for the stop-flag"))
    with stopping_by_signals(stopped):
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(tasks)
    if not tasks[0].cancelled():
        tasks[0].result()


def run(*, loop: asyncio.AbstractEventLoop | None = None, **kwargs: Any) -> None:
    """
    Run an operator synchronously: in the specified event loop, or in a new one.

    See :func:`operator` for the arguments.
    """
    if loop is None:
        asyncio.run(operator(**kwargs))
    else:
        loop.run_until_complete(operator(**kwargs))


async def spawn_tasks(**kwargs: Any) -> Collection[asyncio.Task[None]]:
    """
    Start an operator in the background, and return its tasks, to be run by :func:`run_tasks`.

    See :func:`operator` for the arguments.
    """
    return [asyncio.create_task(operator(**kwargs), name="operator")]


async def run_tasks(root_tasks: Collection[asyncio.Task[Any]], **kwargs: Any) -> None:
    """
    Wait until any of the tasks ends, then stop all others, and raise the errors of them, if there are any.

    The arguments are those of :func:`asyncio.wait`, all optional.
    """
    kwargs = {"return_when": asyncio.FIRST_COMPLETED, **kwargs}
    try:
        await asyncio.wait(root_tasks, **kwargs)
    finally:
        for task in root_tasks:
            task.cancel()
        await asyncio.gather(*root_tasks, return_exceptions=True)
    for task in root_tasks:
        if not task.cancelled():
            task.result()
