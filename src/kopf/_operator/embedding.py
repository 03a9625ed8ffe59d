"""
Embedding: how the command line or an application starts an operator, stops it, and waits for it.

Nothing but the operator's own parts is affected: it stops only its own tasks, and leaves the signals that the
application handles to the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    """The options of :func:`operator`, for functions that pass them through."""

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
    preflight: bool | Sequence[str]
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
    preflight: bool | Sequence[str] = False,
    leader_election: bool | str | None = None,
    shards: bool | str | None = None,
    memories: Any = None,
    insights: Any = None,
    indexers: Any = None,
    _command: Any = None,
) -> None:
    """
    Run an operator in the current event loop until it is stopped.

    All options have defaults:

    - ``registry``: the handlers; by default, all handlers of the decorators ``kopf.on...`` and the like.
    - ``settings``: the settings, which startup handlers can change; by default, new ones.
    - ``lifecycle``: the function that chooses and orders the pending handlers; by default, that of
      :func:`set_default_lifecycle`.
    - ``memo``: the memo of the operator, which is copied for each object; by default, an empty :class:`Memo`.
    - ``vault``: credentials that the operator shares with others, and does not close; by default, its own.
    - ``namespaces`` (or one ``namespace``): restrict the operator to these namespaces: names, globs, or regular
      expressions. ``clusterwide``: serve the whole cluster; this is also the default.
    - ``stop_flag``: stops the operator when raised. ``ready_flag``: raised when the operator begins to watch, or,
      without access to the cluster, 5 seconds after the startup handlers. If the operator ends earlier, an event is
      raised, too; a future gets the error, or is cancelled if there is none. Flags are events or futures, of asyncio
      or of threads.
    - ``liveness_endpoint``: where to serve the health, as ``http://host:port/path``; by default, nowhere.
      ``metrics_endpoint``: the same for the metrics, which need the extra ``kopf[metrics]``. They can share a port.
    - ``peering_name``: the peering object, which then must exist. Of several operators, the one with the highest
      ``priority`` works. ``identity``: the name of this operator for its peers; by default, a generated one.
      ``standalone``: ignore other operators. These options override the settings.
    - ``leader_election``, ``shards``: be one of several replicas, of which one works, or all share the objects. A
      string is the name of their Lease; by default, that of the settings. Replicas replace the peering, unless
      ``peering_name`` or ``priority`` is set, too.
    - ``record``: a file for a recording of all reads, writes, and calls, for replays. Beyond ``record_limit`` bytes,
      the oldest half is dropped. ``record_random``: record the seed of the module ``random``, too, so that handlers
      get the same values in replays; everybody who has the file can derive them.
    - ``preflight``: name all missing permissions at the start, like ``kopf run``: one more request per namespace. A
      list is the command that prints all roles, by its arguments; the message names it.
    - ``memories``, ``insights``, ``indexers``, ``_command``: ignored with a warning; they were for internals of the
      original framework.

    The operator also stops when its task is cancelled, and, in the main thread, after SIGINT or SIGTERM; the second
    signal ends the whole process at once.

    Large because existing applications call it with these arguments.

    Raises :class:`DeclarationError` if some handlers can never work; :class:`ValueError` if the patterns of namespaces
    or the options make no sense; :class:`LoginError` if the cluster refuses the operator; :class:`ActivityError` if a
    startup handler fails; and other errors after which the operator cannot go on.
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
            from kopf._coordination.peer_identity import make_identity  # operators without recordings do not need it

            identity = make_identity()  # known in advance for the recording: the records of the peering have it
        kept = {
            "standalone": standalone,
            "peering_name": peering_name,
            "priority": priority,
            "coordination": settings.coordination.mode,
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
                preflight=preflight,
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
    """Release the waiters for the readiness of the operator when it ends."""
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
    stopped, ending = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(running.run(ending), name="operator")
    waiters: list[asyncio.Task[Any]] = [asyncio.create_task(stopped.wait())]
    if stop_flag is not None:
        waiters.append(asyncio.create_task(wait_flag(stop_flag), name="waiting for the stop-flag"))
    with stopping_by_signals(stopped, settings.process):
        try:
            await asyncio.wait([task, *waiters], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ending.is_set():  # otherwise, it finishes its work already, because of an error
                task.cancel()
            await cancel(waiters)
            await asyncio.gather(task, return_exceptions=True)
    _raise_first_error([task, *waiters])


def run(*, loop: asyncio.AbstractEventLoop | None = None, **kwargs: Unpack[OperatorOptions]) -> None:
    """
    Run an operator until it is stopped: in the event loop ``loop``, by default in a new one.

    The other options and the errors are the same as in :func:`operator`.
    """
    if loop is None:
        asyncio.run(operator(**kwargs))
    else:
        loop.run_until_complete(operator(**kwargs))


async def spawn_tasks(**kwargs: Unpack[OperatorOptions]) -> Collection[asyncio.Task[None]]:
    """
    Start an operator in the background, and return its tasks for :func:`run_tasks`.

    The options are the same as in :func:`operator`; its errors are the errors of the tasks.
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
    Wait until one of the tasks ends, then stop the others, and raise the first error, if there is any.

    ``return_when`` is as in :func:`asyncio.wait`; by default, ``FIRST_COMPLETED``. The ``ignored`` tasks belong to the
    application: they are never stopped, even if they are among ``root_tasks``. Other tasks of the event loop are not
    affected.
    """
    tasks = [task for task in root_tasks if task not in ignored]
    try:
        await asyncio.wait(tasks, return_when=return_when)
    finally:
        await cancel(tasks)
    _raise_first_error(tasks)


def _raise_first_error(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if not task.cancelled():
            task.result()
