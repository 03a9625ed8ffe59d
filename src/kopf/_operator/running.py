"""
Running: the life of one operator, from the startup handlers to the cleanup handlers.

The order of the shutdown matters: first, the streams stop; then the running handlers finish; then their last log
records are posted as events; then the cleanup handlers run; the connections, which all these need, are closed last.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from kopf._client.auth.vault import Vault
from kopf._client.errors import APIError
from kopf._client.fencing import Fence
from kopf._client.http.api import APIClient, offering
from kopf._controller.controller_registry import Controllers, get_current_controllers, offering_controllers
from kopf._controller.indexing.indexers import Indexers
from kopf._controller.indexing.readiness import IndexReadiness
from kopf._controller.instruments import NO_INSTRUMENTS, Instruments
from kopf._controller.memos import Memos
from kopf._controller.observer import Observers
from kopf._controller.pausing import Pause
from kopf._controller.runtime import Runtime
from kopf._controller.sharing import Share, current_share
from kopf._coordination.peering import Peering
from kopf._events.log_posting import EventRecorder, posting
from kopf._handlers.attempts import Outcome
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.time_source import Clock
from kopf._health.liveness import Liveness
from kopf._health.watchdog import Watchdog
from kopf._logging.log_levels import get_internal_level
from kopf._operator.activities import Activities
from kopf._operator.flags import Flag, raise_flag
from kopf._operator.insight import InsightSources, serving
from kopf._operator.login import Authenticator
from kopf._operator.login import logger as login_logger
from kopf._operator.namespace_patterns import NamespacePattern
from kopf._operator.namespaces import Namespaces
from kopf._operator.readiness_summary import is_heard, summarize_readiness
from kopf._operator.resource_observer import ResourceObserver
from kopf._operator.tasks import cancel, either, fail_together
from kopf._serving.endpoints import Endpoint
from kopf._settings.settings import OperatorSettings, settle_coordination
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity
from kopf._values.records import FrozenRecord, field
from kopf._values.version import __version__

if TYPE_CHECKING:
    from kopf._admission.webhooks import Webhooks
    from kopf._coordination.replicas import Replicas
    from kopf._operator.replica_status import ReplicaStatus

logger = logging.getLogger(__name__)

_COMPARABLE_VERSIONS_SINCE = (1, 35)
_READY_TIMEOUT = 5.0
"""
How long after the startup handlers the ready flag is raised anyway, in seconds. Without access to the cluster, the
operator retries forever, and can be stopped; but some applications stop it only after it was ready.
"""
_FLUSH_TIMEOUT = 2.0
"""How long the posting of the last events may delay the exit, in seconds."""


class OperatorSetup(FrozenRecord, frozen=True, kw_only=True):
    """The parts and options that an operator is made of."""

    registry: OperatorRegistry
    settings: OperatorSettings
    lifecycle: LifeCycleFn
    namespaces: Collection[NamespacePattern]
    """The namespaces that it serves; if there are none, it serves the whole cluster."""
    identity: str | None
    """Its name for other operators; ``None`` is for a generated one."""
    vault: Vault | None
    """Credentials that it shares with others, and does not close; ``None`` is for its own ones."""
    memo: Any
    ready_flag: Flag | None
    endpoint: Endpoint | None
    """The endpoint of its health, if any."""
    instruments: Instruments = NO_INSTRUMENTS
    """Its replaced parts, if it is recorded, replayed, or simulated."""
    observers: Observers = field(default_factory=Observers)
    """The observers of everything that happens."""
    tells_readiness: bool = False
    """Whether it logs a summary when it is ready: one more request."""
    preflight: bool | Sequence[str] = False
    """
    Whether it logs all missing permissions at the start: one more request for each namespace. A list is the command
    that prints all roles, by its arguments.
    """


class Operator:
    """One running operator: its parts and its life."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        setup.settings.peering.clusterwide = not setup.namespaces
        self._vault = setup.vault if setup.vault is not None else Vault(setup.settings, authenticators=0)
        self._api = setup.instruments.make_client(self._vault, setup.settings, setup.observers)
        self._liveness = Liveness()
        self._pause = Pause()
        self._pause.subscribe(lambda: setup.observers.pause_changed(self._pause))
        self._indexers = Indexers(setup.registry.get_indexing())
        self._executor = setup.instruments.make_executor(setup.settings.execution, setup.observers)
        self._activities = Activities(setup.settings, self._executor, memo=setup.memo, indices=self._indexers.indices)

    async def run(self, ending: asyncio.Event | None = None) -> None:
        """
        Run until cancelled. Raises errors after which the operator cannot go on.

        It sets ``ending`` when it begins to finish its work.
        """
        clock, ending = Clock(), ending or asyncio.Event()
        self._setup.instruments.on_start(clock.now())
        recorder = EventRecorder(self._api, self._setup.settings)
        with (
            posting(recorder),
            offering(self._api),
            offering_controllers(Controllers()),
            Watchdog(self._setup.settings.health) as watchdog,
            contextlib.ExitStack() as stack,
        ):
            try:
                await self._run_activity(Activity.STARTUP)
                self._check_admission()
                settle_coordination(self._setup.settings, has_replicas=self._setup.instruments.has_replicas)
                if (flag := self._setup.ready_flag) is not None:
                    giving_up = asyncio.get_running_loop().call_later(_READY_TIMEOUT, raise_flag, flag)
                    stack.callback(giving_up.cancel)
                replica = None
                if self._setup.settings.coordination.mode is not None:
                    from kopf._operator.replica_status import ReplicaStatus  # most operators are alone

                    self._setup.observers.add(replica := ReplicaStatus())
                async with self._serve(watchdog, replica):
                    await self._work(recorder, clock, ending, replica)
            finally:
                ending.set()
                await self._shut_down()

    async def _run_activity(self, activity: Activity) -> None:
        handlers = self._setup.registry.get_activities(activity)
        await self._activities.run(activity, handlers)

    def _serve(self, watchdog: Watchdog, replica: ReplicaStatus | None) -> AbstractAsyncContextManager[None]:
        setup = self._setup
        handlers = setup.registry.get_activities(Activity.PROBE)

        async def probe() -> Mapping[HandlerId, Outcome]:
            return await self._activities.attempt(Activity.PROBE, handlers, is_quiet=True)

        sources = InsightSources(
            registry=setup.registry,
            settings=setup.settings,
            namespaces=setup.namespaces,
            observers=setup.observers,
            health_endpoint=setup.endpoint,
            watchdog=watchdog,
            liveness=self._liveness,
            pause=self._pause,
            replica=replica,
            probe=probe if handlers else None,
        )
        return serving(sources)

    async def _work(
        self, recorder: EventRecorder, clock: Clock, ending: asyncio.Event, replica: ReplicaStatus | None
    ) -> None:
        authenticator = Authenticator(self._vault, self._setup.registry, self._activities)
        if not self._vault.is_populated:
            login_logger.log(get_internal_level(), "Initial authentication has been initiated.")
            await authenticator.login()
            login_logger.log(get_internal_level(), "Initial authentication has finished.")
        authenticating = asyncio.create_task(authenticator.run(), name="authenticator")
        helpers = [authenticating]
        try:
            runtime = await either(self._make_runtime(clock, asyncio.current_task()), authenticating)
            helpers.append(asyncio.create_task(recorder.run(), name="recorder of events"))
            peering = Peering(runtime, self._setup.identity)
            webhooks = self._make_webhooks(runtime, peering)
            namespaces = Namespaces(runtime, self._setup.namespaces)
            observer = ResourceObserver(runtime, self._setup.registry, namespaces, peering)
            replicas = self._make_replicas(runtime, observer)
            coordinating = None if replicas is None else asyncio.create_task(replicas.run(), name="coordination")
            if coordinating is not None:
                helpers.append(coordinating)
            publishing = []
            if self._setup.tells_readiness and is_heard():
                summary = summarize_readiness(runtime, self._setup.registry, observer, namespaces, peering, replica)
                helpers.append(asyncio.create_task(summary, name="summary of the readiness"))
            if self._setup.preflight:
                helpers.append(_start_preflight(self._setup, runtime, observer, namespaces))
            if webhooks is not None:
                helpers.append(asyncio.create_task(webhooks.serve(), name="webhook server"))
                observer.on_discovery = webhooks.accept_resources
                publishing.append(asyncio.create_task(webhooks.publish(), name="publisher of the webhooks"))
            observing = asyncio.create_task(observer.run(), name="observer")
            participating = asyncio.create_task(_take_part(peering, replicas), name="peering")
            if self._setup.ready_flag is not None:
                raise_flag(self._setup.ready_flag)
            try:
                await fail_together([observing, participating, *publishing, *helpers])
            finally:
                ending.set()
                self._setup.instruments.on_stop()
                if replicas is not None and coordinating is not None and not coordinating.done():
                    await replicas.leave()  # while everything works
                await cancel([observing, *publishing])
                if webhooks is not None:
                    await webhooks.retire()
                await observer.watchers.stop()
                await cancel([participating])
                await peering.leave()  # after everything is done, so that others do not interfere
                if webhooks is not None:
                    await webhooks.finish()
                await recorder.flush(_FLUSH_TIMEOUT)
        finally:
            await cancel(helpers)

    def _make_replicas(self, runtime: Runtime, observer: ResourceObserver) -> Replicas | None:
        if runtime.share.fence is None:
            return None
        from kopf._coordination.replicas import Replicas  # most operators are alone
        from kopf._operator.slot_moves import SlotMoves

        moves, handlers = SlotMoves(runtime, observer.watchers), _get_fingerprint(self._setup)
        replicas = Replicas(runtime, moves, runtime.share.fence, handlers=handlers, version=__version__)
        runtime.share.get_token = replicas.get_token
        return replicas

    @property
    def _has_admission(self) -> bool:
        registry, managed = self._setup.registry, self._setup.settings.admission.managed
        has_any = bool(registry.webhooks or registry.conversions) or managed is not None
        return has_any and self._setup.instruments.has_webhooks

    def _check_admission(self) -> None:
        if self._has_admission:
            from kopf._admission.webhooks import check_admission  # most operators have no admission at all

            check_admission(self._setup.registry, self._setup.settings.admission)

    def _make_webhooks(self, runtime: Runtime, peering: Peering) -> Webhooks | None:
        if not self._has_admission:
            return None
        from kopf._admission.webhooks import Webhooks

        return Webhooks(runtime, self._setup.registry, peering.settle)

    async def _make_runtime(self, clock: Clock, task: asyncio.Task[None] | None) -> Runtime:
        fence = None
        if self._setup.settings.coordination.mode is not None:
            from kopf._coordination.replica_identity import settle_lease_namespace  # most operators are alone

            await settle_lease_namespace(self._setup.settings.coordination, self._vault)
            fence = self._api.fence = Fence()
            self._executor.put_behind(fence)
        share = Share(fence)
        current_share.set(share)
        return Runtime(
            indexers=self._indexers,
            index_readiness=IndexReadiness(),
            settings=self._setup.settings,
            api=self._api,
            task=task,
            clock=clock,
            lifecycle=self._setup.lifecycle,
            executor=self._executor,
            memos=Memos(self._setup.memo),
            indices=self._indexers.indices,
            liveness=self._liveness,
            controllers=get_current_controllers(),
            pause=self._pause,
            share=share,
            observer=self._setup.observers,
            comparable_versions=await _has_comparable_versions(self._api),
        )

    async def _shut_down(self) -> None:
        try:
            await self._run_activity(Activity.CLEANUP)
        finally:
            if self._setup.vault is None:  # otherwise, it is still needed by others
                await self._vault.close()
            self._executor.running.stop()
            self._executor.threads.release()


async def _has_comparable_versions(api: APIClient) -> bool:
    """Tell if the server orders resource versions, see KEP-5504. If its version is unknown, assume that it does not."""
    try:
        version = codec.decode_answer(await api.get("/version"))
        parsed = int(version["major"]), int(version["minor"].rstrip("+"))
    except (APIError, KeyError, ValueError, TypeError, AttributeError) as e:
        logger.warning("The version of the cluster is unknown, so it is treated as an old one: %s", e)
        return False
    return parsed >= _COMPARABLE_VERSIONS_SINCE


async def _take_part(peering: Peering, replicas: Replicas | None) -> None:
    """Take part in the peering, forever. Replicas without Leases handle nothing, so they must not pause others."""
    if replicas is None:
        await peering.run()
    while replicas is not None:
        await replicas.joined.wait()
        running = asyncio.create_task(peering.run(), name="peering of the replica")
        try:
            await either(replicas.parted.wait(), running)
        finally:
            await cancel([running])
        await peering.leave(for_now=True)


def _get_fingerprint(setup: OperatorSetup) -> str:
    """Make an identifier of the handlers and the namespaces, to distinguish operators with different ones."""
    handlers = {f"{handler.selector} {type(handler).__name__} {handler.id}" for handler in setup.registry.resources}
    lines = [*sorted(handlers), *sorted({str(pattern) for pattern in setup.namespaces})]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _start_preflight(
    setup: OperatorSetup, runtime: Runtime, observer: ResourceObserver, namespaces: Namespaces
) -> asyncio.Task[None]:
    from kopf._operator.preflight import Preflight  # not all operators have it

    command = () if isinstance(setup.preflight, bool) else setup.preflight
    preflight = Preflight(runtime, setup.registry, observer, namespaces, setup.namespaces, command)
    return asyncio.create_task(preflight.run(), name="preflight")
