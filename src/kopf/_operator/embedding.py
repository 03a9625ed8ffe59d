"""
Embedding: how an operator is started, stopped, and waited for by whatever runs it: the command line or an application.

Only what belongs to the operator is ever touched: its own tasks are stopped, and the other tasks of the event loop go
on; the signals that the application handles by itself, remain with the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypedDict, Unpack

from kopf._client.auth.vault import Vault
from kopf._controller.instruments import NO_INSTRUMENTS, Instruments
from kopf._controller.memos import Memo
from kopf._handlers.lifecycles import LifeCycleFn, get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._handlers.signatures import check_registry
from kopf._operator.flags import Flag, release_flag, wait_flag
from kopf._operator.namespace_patterns import NamespacePattern, check_patterns, encode_pattern
from kopf._operator.running import Operator, OperatorSetup
from kopf._operator.signals import stopping_by_signals
from kopf._operator.tasks import cancel
from kopf._serving.endpoints import parse_endpoint
from kopf._settings.coordination import set_coordination
from kopf._settings.settings import OperatorSettings, set_peering

logger = logging.getLogger(__name__)


class OperatorOptions(TypedDict, total=False):
    """The options of :func:`operator`, for those who pass them through."""

    lifecycle: LifeCycleFn | None
    registry: OperatorRegistry | None
    settings: OperatorSettings | None
    identity: str | None
    standalone: bool | None
    priority: int | None
    peering_name: str | None
    leader_election: bool | str | None
    shards: bool | str | None
    clusterwide: bool
    namespaces: Collection[NamespacePattern]
    namespace: NamespacePattern | None
    stop_flag: Flag | None
    ready_flag: Flag | None
    vault: Vault | None
    memo: Any
    liveness_endpoint: str | None
    metrics_endpoint: str | None
    record: str | os.PathLike[str] | None
    record_limit: int
    record_random: bool
    preflight: bool
    memories: Any
    insights: Any
    indexers: Any
    _command: Any


DEFAULT_RECORD_LIMIT = 64 * 2**20
"""The largest size of a recording, in bytes."""
_SEED_SIZE = 6


async def operator(
    *,
    lifecycle: LifeCycleFn | None = None,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    identity: str | None = None,
    standalone: bool | None = None,
    priority: int | None = None,
    peering_name: str | None = None,
    clusterwide: bool = False,
    namespaces: Collection[NamespacePattern] = (),
    namespace: NamespacePattern | None = None,
    stop_flag: Flag | None = None,
    ready_flag: Flag | None = None,
    vault: Vault | None = None,
    memo: Any = None,
    liveness_endpoint: str | None = None,
    metrics_endpoint: str | None = None,
    record: str | os.PathLike[str] | None = None,
    record_limit: int = DEFAULT_RECORD_LIMIT,
    record_random: bool = False,
    preflight: bool = False,
    leader_election: bool | str | None = None,
    shards: bool | str | None = None,
    memories: Any = None,
    insights: Any = None,
    indexers: Any = None,
    _command: Any = None,
) -> None:
    """
    Run an operator in the current event loop until it is stopped.

    It is stopped by the ``stop_flag``, by cancelling the task, or, in the main thread, by SIGINT or SIGTERM; the second
    signal ends the whole process at once. ``ready_flag`` is raised when the operator begins to watch, or, if there is
    no access to the cluster, 5 seconds after the startup handlers. If the operator ends earlier than that, events are
    raised, too, and futures get the error, or are cancelled if there is none: nobody has to wait forever.
    Flags can be events or futures of either asyncio or threads.

    ``liveness_endpoint`` is where to serve the health: ``http://host:port/path``; by default, it is not served.
    ``metrics_endpoint`` is the same for the metrics, which need the extra ``kopf[metrics]``; they can share a port.

    ``namespaces`` (or one ``namespace``) restrict the operator to those namespaces: they are names, globs, or regular
    expressions; ``clusterwide`` is for the whole cluster, which is also the default.

    ``peering_name`` is the object by which the operator knows of the other ones, and which is then mandatory; of
    several, the one with the highest ``priority`` works. With ``standalone``, it does not look for others. It is known
    to them by its ``identity``, which is made up by default. All these go to the settings, if they are set.

    ``record`` is a file to be written with all that the operator reads, writes, and calls, for replays; of more than
    ``record_limit`` bytes, the oldest half is dropped. With ``record_random``, what handlers get by the module
    ``random`` can be replayed, too; and derived by whoever has the file.

    With ``leader_election`` or ``shards``, it is one of several replicas, of which one works, or all share the objects.
    A string is the name of their Lease, which is otherwise that of the settings. They replace the peering, unless
    ``peering_name`` or ``priority`` is there, too.

    With ``preflight``, all missing permissions are named at once, as with ``kopf run``: one request more for each
    namespace.

    ``memories``, ``insights``, ``indexers``, ``_command`` were for the internals of the original framework; they are
    ignored with a warning.

    All else has defaults as described in the documentation.

    Large because the existing applications call it with these arguments.

    Raises :class:`DeclarationError` if some handlers can never work; :class:`ValueError` if the patterns of namespaces
    or the options make no sense; :class:`LoginError` if the cluster refuses
    the operator; :class:`ActivityError` if a startup handler fails; and other errors that make it impossible to go on.
    """
    with _releasing(ready_flag):
        _warn_of_ignored(memories=memories, insights=insights, indexers=indexers, _command=_command)
        registry = registry if registry is not None else get_default_registry()
        check_registry(registry)
        settings = settings if settings is not None else OperatorSettings()
        set_peering(settings, standalone=standalone, priority=priority, name=peering_name)
        set_coordination(settings.coordination, leader_election=leader_election, shards=shards)
        if metrics_endpoint is not None:
            settings.metrics.endpoint = metrics_endpoint
        patterns = check_patterns([*namespaces, *([] if namespace is None else [namespace])])
        if patterns and clusterwide:
            raise ValueError("The operator can be either cluster-wide or restricted to namespaces, not both.")
        if record is not None and identity is None:
            from kopf._coordination.peer_identity import make_identity  # those who are alone, need none of that

            identity = make_identity()  # it is to be known in advance: the records of the peering have it
        kept = {
            "standalone": standalone,
            "peering_name": peering_name,
            "priority": priority,
            "namespaces": [encode_pattern(pattern) for pattern in patterns],
            "identity": identity,
        }
        async with _recording(record, record_limit, kept, has_seed=record_random) as instruments:
            setup = OperatorSetup(
                registry=registry,
                settings=settings,
                lifecycle=lifecycle if lifecycle is not None else get_default_lifecycle(),
                namespaces=patterns,
                identity=identity,
                vault=vault,
                memo=memo if memo is not None else Memo(),
                ready_flag=ready_flag,
                endpoint=None if liveness_endpoint is None else parse_endpoint(liveness_endpoint),
                instruments=instruments,
                tells_readiness=True,
                has_preflight=preflight,
            )
            await _run_until_stopped(Operator(setup), stop_flag, settings)


def _warn_of_ignored(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            logger.warning("The option %s= of operators is ignored: it was an internal one of Kopf 1.", name)
            if asyncio.iscoroutine(value):
                value.close()


def _recording(
    path: str | os.PathLike[str] | None, limit: int, options: Mapping[str, Any], *, has_seed: bool
) -> contextlib.AbstractAsyncContextManager[Instruments]:
    if path is None:
        return contextlib.nullcontext(NO_INSTRUMENTS)
    from kopf._replay.recording import recording  # it is rare

    seed = int.from_bytes(os.urandom(_SEED_SIZE)) if has_seed else None
    return recording(pathlib.Path(path), limit=limit, options=options, seed=seed)


@contextlib.contextmanager
def _releasing(flag: Flag | None) -> Iterator[None]:
    """When the operator ends, let go those who still wait for it to be ready."""
    error: BaseException | None = None
    try:
        yield
    except BaseException as e:
        error = e
        raise
    finally:
        if flag is not None:
            release_flag(flag, error)


async def _run_until_stopped(running: Operator, stop_flag: Flag | None, settings: OperatorSettings) -> None:
    stopped = asyncio.Event()
    tasks = [asyncio.create_task(running.run(), name="operator"), asyncio.create_task(stopped.wait())]
    if stop_flag is not None:
        tasks.append(asyncio.create_task(wait_flag(stop_flag), name="waiting for the stop-flag"))
    with stopping_by_signals(stopped, settings.process):
        await run_tasks(tasks)


def run(*, loop: asyncio.AbstractEventLoop | None = None, **kwargs: Unpack[OperatorOptions]) -> None:
    """
    Run an operator synchronously: in the specified event loop, or in a new one.

    See :func:`operator` for the arguments.
    """
    if loop is None:
        asyncio.run(operator(**kwargs))
    else:
        loop.run_until_complete(operator(**kwargs))


async def spawn_tasks(**kwargs: Unpack[OperatorOptions]) -> Collection[asyncio.Task[None]]:
    """
    Start an operator in the background, and return its tasks, to be run by :func:`run_tasks`.

    See :func:`operator` for the arguments.
    """
    task = asyncio.create_task(operator(**kwargs), name="operator")
    if (ready_flag := kwargs.get("ready_flag")) is not None:
        task.add_done_callback(lambda _: release_flag(ready_flag, None))  # if it is cancelled before it begins
    return [task]


async def run_tasks(
    root_tasks: Collection[asyncio.Task[Any]],
    *,
    ignored: Collection[asyncio.Task[Any]] = frozenset(),
    return_when: str = asyncio.FIRST_COMPLETED,
) -> None:
    """
    Wait until any of the tasks ends, then stop all others, and raise the errors of them, if there are any.

    ``return_when`` is as in :func:`asyncio.wait`. The ``ignored`` tasks are those of the application, which are never
    stopped, even if they are among the root tasks; all the tasks that are not of the operator, are left alone anyway.
    """
    tasks = [task for task in root_tasks if task not in ignored]
    try:
        await asyncio.wait(tasks, return_when=return_when)
    finally:
        await cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
