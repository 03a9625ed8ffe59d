"""
The simulation: an operator and a cluster in one event loop with a virtual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import pathlib
import random
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import kopf_cluster
from kopf._handlers.registry import OperatorRegistry
from kopf._models.crds import list_models, make_definitions
from kopf._operator.namespace_patterns import NamespacePattern
from kopf._settings.coordination import CoordinationMode
from kopf._settings.settings import OperatorSettings
from kopf._testing.expectations import Expectation, Place, Wanted, locate
from kopf._testing.simulated_faults import SimulatedFaults
from kopf._testing.simulated_objects import Manifests, Obj, SimulatedObjects
from kopf._testing.simulated_operator import Action, Moment, SimulatedOperator
from kopf._testing.simulated_process import ProcessOptions, SilencingFilter, make_settings, make_task
from kopf._testing.simulated_replicas import Replicas
from kopf._virtual_time.journal import ObjectPlace, Write, describe_changes
from kopf._virtual_time.patience import NOT_BEGUN, PATIENCE, SimulationError
from kopf._virtual_time.process_patches import virtual_process
from kopf._virtual_time.simulated_clock import SimulatedClock
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop, make_numbered_task
from kopf.cli.loading import load_anew

T = TypeVar("T")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""The default date and time at the beginning of a simulation."""
USER = "operator"
"""The default name of the operator's user in the cluster."""
_CALM, _LIMIT = 1.0, 3600.0
_MOST_CHANGES = 300
"""How many times an object may change at the same moment: a proper operator needs only a few changes."""
_NOISE = {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}  # written forever, even if nothing happens


class Simulation(SimulatedObjects, SimulatedOperator):
    """
    An operator and a cluster in one event loop with virtual time, which jumps when there is nothing to do.

    It is an asynchronous context manager. It needs an event loop with virtual time: the one of the pytest
    fixture ``simulation``, of :func:`simulate`, or of :class:`SyncSimulation`. The context starts the cluster, then the
    operator; on exit, it stops both and leaves nothing behind.

    Large because it is the interface for tests: all actions of tests are here, most of the implementation is elsewhere.

    :param paths: the files of the operator, as for ``kopf run``; they are loaded anew.
    :param modules: the modules of the operator, as for ``kopf run -m``; they are loaded anew, too.
    :param registry: the handlers, if they are neither in the files nor in the default registry.
    :param settings: the settings for every process of the operator, or a function that returns them.
    :param namespaces: the namespaces for the operator to serve; the whole cluster by default.
    :param crds: manifests to apply before the operator starts, usually custom resource definitions. The definitions of
        the operator's models are applied automatically, unless they are here.
    :param seed: the seed of all random decisions.
    :param start: the date and time at the beginning. All timestamps are relative to it, both in objects and in the
        kwargs of handlers.
    :param freeze_wall_clock: whether ``time.time()``, ``datetime.now()``, etc. return the virtual time in the whole
        process; by default, only if the library ``time-machine`` is installed.
    :param operator: whether to start the operator at the beginning; if not, start it with :meth:`restart`.
    :param user: the name of the operator's user in the cluster.
    :param groups: the groups of this user; with ``authorization="rbac"``, there are usually none.
    :param patience: the limit of the real time of one handler, in seconds. It catches hanging handlers, not slow ones.
    :param slack: additional seconds of the virtual time for all limits of the test: before it counts as settled, and
        before waiting fails. For tests that run with trouble of which they do not know.
    :param cluster: the options of :class:`LocalCluster`, e.g. ``simulate=True``, ``authorization="rbac"``.
    """

    def __init__(
        self,
        *paths: str | pathlib.Path,
        modules: Iterable[str] = (),
        registry: OperatorRegistry | None = None,
        settings: OperatorSettings | Callable[[], OperatorSettings] | None = None,
        namespaces: Collection[NamespacePattern] = (),
        crds: Manifests | Sequence[Manifests] = (),
        seed: int = 0,
        start: datetime.datetime = START,
        freeze_wall_clock: bool | None = None,
        operator: bool = True,
        user: str = USER,
        groups: Iterable[str] = ("system:masters",),
        patience: float = PATIENCE,
        slack: float = 0.0,
        **cluster: Any,
    ) -> None:
        """Large because of the many options, which are described above."""
        clock = SimulatedClock(start, is_frozen=freeze_wall_clock)
        super().__init__(kopf_cluster.LocalCluster(seed=seed, **cluster), user, clock, slack=slack)
        if patience <= 0:
            raise ValueError(f"The patience must be a positive number of seconds, not {patience:g}.")
        self.seed = seed
        self.faults = SimulatedFaults(self)
        """The faults to inject."""
        self._paths = [str(path) for path in paths]
        self._modules = [*modules]
        self._registry = registry
        self._settings = settings
        self._namespaces = namespaces
        self._crds: Sequence[Manifests] = [crds] if isinstance(crds, str | pathlib.Path | Mapping) else crds
        self._is_operator_wanted = operator
        self._groups = [*groups]
        self._kubeconfig: pathlib.Path | None = None
        self._patience = patience
        self._standstill = StandstillGuard()
        self._stack = contextlib.AsyncExitStack()
        self._activity_before = -1

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualTimeLoop):
            raise SimulationError(
                "A simulation needs an event loop with virtual time: use the fixture `simulation` of pytest, "
                "or kopf.testing.simulate(), or kopf.testing.SyncSimulation."
            )
        self._own_loop = loop
        self._loop.patience = self._patience
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._problem is not None:  # it would never exit gracefully if something is stuck or blocked
                await self.crash_now()
            await self.end_all()
        finally:
            await self._stack.aclose()

    async def _begin(self) -> None:
        registry = self._load_registry()
        randomness = random.getstate()
        self._stack.callback(random.setstate, randomness)
        random.seed(self.seed)
        self._clock.follow(self._loop)
        self.cluster.faults.clock.tell = self._clock.now
        await self._stack.enter_async_context(self.cluster)
        self._kubeconfig = await self.cluster.open_plain_port(self.user, self._groups)
        # Not before: certificates are for the real time.
        self._stack.enter_context(virtual_process(self._loop, self._clock, str(self._kubeconfig), self.fail))
        self.logs.addFilter(SilencingFilter())
        self._stack.enter_context(self.logs.taking())
        self._loop.on_busy, self._loop.overlaps = self._note_busyness, self.journal.overlaps
        self.cluster.observe(self._note_change)
        self.cluster.observe(self._one_owner.note_change)
        self.cluster.faults.advisers += [self._actions.advise]
        self.cluster.add_token("simulated-operator", self.user, self._groups)
        self._birth = ProcessOptions(
            loop=self._loop,
            cluster=self.cluster,
            registry=registry,
            settings=self._settings,
            namespaces=self._namespaces,
            token="simulated-operator",
            journal=self.journal,
            context=contextvars.copy_context(),
        )
        self._loop.set_task_factory(make_task)
        self._stack.callback(self._loop.set_task_factory, make_numbered_task)
        for manifests in self._crds:
            await self.apply(manifests)
        for definition in make_definitions(list_models(registry)):
            if await self.find("crd", definition["metadata"]["name"]) is None:
                await self.apply(definition)
        if self._is_operator_wanted:
            await self.restart()
            await self._loop.be_idle()  # it watches already: it gets the first actions of the test as events

    async def replicas(
        self,
        count: int,
        mode: CoordinationMode | None = None,
        *,
        name: str = "replica",
        registry: OperatorRegistry | None = None,
        configure: Callable[[OperatorSettings], object] = id,
    ) -> Replicas:
        """
        Start several replicas of the operator: ``replica-0``, ``replica-1``, and so on. Each is a user of the cluster.

        The operator of the simulation is not a replica: usually, the test does not start it (``operator=False``).

        :param mode: ``leader`` or ``shards``; by default, the replicas are not coordinated, except by peering.
        :param name: the prefix of their names.
        :param registry: their handlers, if they differ from the handlers of the simulation, e.g. of a new version.
        :param configure: a function that changes the settings of each replica before its start.
        """

        def make_options(replica: str) -> ProcessOptions:
            if self._birth is None:
                raise SimulationError(NOT_BEGUN)

            def make_replica_settings() -> OperatorSettings:
                settings = make_settings(self._settings)
                settings.coordination.mode = mode or settings.coordination.mode
                settings.coordination.identity = replica
                configure(settings)
                return settings

            self._actions.users.add(replica)
            self.cluster.add_token(f"simulated-{replica}", replica, self._groups)
            return dataclasses.replace(
                self._birth,
                name=replica,
                registry=registry or self._registry or self._load_registry(),
                settings=make_replica_settings,
                token=f"simulated-{replica}",
            )

        group = Replicas(self, make_options, name, self._one_owner)
        self._replicas.append(group)
        await group.scale(count)
        return group

    def _load_registry(self) -> OperatorRegistry:
        """Load the handlers as a new process does: its modules have their own state."""
        return load_anew(self._paths, self._modules, self._registry)

    async def settle(self, *, calm: float = _CALM, timeout: float = _LIMIT) -> None:
        """
        Let time pass until everything only waits: for a timer, a retry, or a change.

        The simulation is settled when, for ``calm`` seconds, no handler was called and no object was changed. It also
        waits for the end of temporary faults. Raises :class:`SimulationError` with the latest entries of the journal
        if the simulation does not settle within ``timeout`` seconds.
        """
        await self.wait(self._settle(self._planned_downtime + calm + self._slack, timeout))

    async def _settle(self, calm: float, timeout: float) -> None:
        deadline = self.now + timeout
        while True:
            before, lag = self._activity, self.cluster.faults.watch_lag
            await asyncio.sleep(calm + max(self.faults.remaining, lag.most if lag is not None else 0.0))
            if self._activity == before:
                return
            if self.now >= deadline:
                latest = "\n".join(map(str, list(self.journal)[-20:]))
                raise SimulationError(
                    f"The simulation does not settle in {timeout:g} seconds. Its journal ends with:\n{latest}"
                )

    async def expect(
        self,
        kind: str | Mapping[str, Any],
        name: str = "",
        *,
        namespace: str = "default",
        within: float = 60.0,
        **wanted: Unpack[Wanted],
    ) -> Obj:
        """
        Let time pass until the object is as expected, and return it; otherwise, fail with its whole timeline.

        Its kind and name, or any former state of the object, identify it. It must have the ``value`` in the ``field``
        (``field="status.phase", value="Ready"``), or any value there if none is given; or it must satisfy the
        ``condition``, a function of the object; or, with ``absent=True``, it must not exist. Without these options,
        it must only exist. ``within`` is the limit, in seconds of the virtual time.
        """
        place = await self.wait(locate(self, kind, name, namespace))
        return await self.wait(Expectation(self, place, wanted).wait(within))

    async def timeline(self, kind: str | Mapping[str, Any], name: str = "", *, namespace: str = "default") -> str:
        """Return all calls, changes, and logs of the object, in order of time. For the object, see :meth:`expect`."""
        place: Place = await self.wait(locate(self, kind, name, namespace))
        return place.describe_timeline(self)

    # Access for other clients, and actions at specific moments.

    @property
    def kubeconfig(self) -> pathlib.Path:
        """
        The path of the operator's kubeconfig for other clients, which connect to a real port of the cluster.

        ``KUBECONFIG`` contains this path during the simulation. The administrator has the kubeconfig of the cluster.
        """
        if self._kubeconfig is None:
            raise SimulationError(NOT_BEGUN)
        return self._kubeconfig

    def when(self, *, write: int | None = None, change: int | None = None, step: int | None = None, do: Action) -> None:
        """
        Call the function at the n-th moment of the given kind from now on.

        A ``write`` is a write request of the operator, except for Kubernetes events: if the function returns a fault
        rule, the rule applies to this request. A ``change`` is any change of an object, a ``step`` is a change by the
        test; the function is called before any watch event about it is sent.
        """
        moments: dict[Moment, int | None] = {"write": write, "change": change, "step": step}
        given = [(moment, number) for moment, number in moments.items() if number is not None]
        if len(given) != 1:
            raise TypeError("Give exactly one moment: write=, change=, or step=.")
        self._actions.add(*given[0], do)

    def _note_change(self, seen: kopf_cluster.Observation) -> None:
        if seen.resource in _NOISE:
            return
        changes = describe_changes(seen.before, seen.after) if seen.type == "MODIFIED" else ()
        write = Write(
            time=self.now,
            resource=seen.resource,
            namespace=seen.namespace,
            name=seen.name,
            author=seen.user,
            type=seen.type,
            changes=changes,
        )
        self.journal.add(write)
        if problem := self._standstill.note(write):
            self.fail(SimulationError(problem))
        self._actions.note_change(seen.user)
        self.notice()

    def _note_busyness(self) -> None:
        if self._activity == self._activity_before:
            self.fail(SimulationError(_describe_busy_tasks(self._loop)))
        self._activity_before = self._activity


class StandstillGuard:
    """
    Counts the changes of each object while the clock stands still.

    An operator that endlessly reacts to its own changes does not let the virtual time pass at all.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._counts: Counter[ObjectPlace] = Counter()

    def note(self, write: Write) -> str:
        """Count a change; return the description of the problem, or an empty text."""
        if write.time != self._now:
            self._now = write.time
            self._counts.clear()
        self._counts[write.place] += 1
        if self._counts[write.place] != _MOST_CHANGES:
            return ""
        return (
            f"{write.place} has been changed {_MOST_CHANGES} times while no time has passed: something endlessly "
            f"reacts to its own changes, and never settles. The latest change:\n{write}"
        )


def _describe_busy_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Describe the tasks that do not wait for anything, with their places in the code."""
    busy = [task for task in asyncio.all_tasks(loop) if getattr(task, "_fut_waiter", None) is None]
    shown = "\n".join(f"{task.get_name()}:\n{_locate(task.get_coro())}" for task in busy)
    return (
        "Time stands still, but nothing happens: one of the tasks below loops without waiting. "
        f"In loops, await something that takes time, e.g. asyncio.sleep(1).\n{shown}"
    )


def _locate(coro: Any) -> str:
    """Format the innermost lines of the stack of the coroutine and of the coroutines that it awaits."""
    lines = []
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        lines += traceback.format_stack(frame, limit=1)
        coro = coro.cr_await
    return "".join(lines[-3:])
