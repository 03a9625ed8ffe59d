"""
The simulation: an operator and a cluster in one event loop with a virtual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime
import inspect
import math
import pathlib
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import kopf_cluster
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.scopes import NamespacePattern
from kopf._settings.settings import OperatorSettings
from kopf._testing.anyio_threads import running_as_jobs
from kopf._testing.appointments import Appointments, Deed
from kopf._testing.environment import offering_kubeconfig
from kopf._testing.expectations import Expectation, Place, Wanted, locate
from kopf._testing.guards import BlockingGuard, sleeping_virtually
from kopf._testing.journal import Journal, Write, describe_changes
from kopf._testing.lives import Birth, SilencingFilter, current_life, make_task
from kopf._testing.loading_anew import load_anew
from kopf._testing.patience import PATIENCE
from kopf._testing.simulated_logs import SimulatedLogs
from kopf._testing.simulated_objects import Manifests, Obj, SimulatedObjects
from kopf._testing.simulated_operator import SimulatedOperator
from kopf._testing.simulation_errors import NOT_BEGUN, SimulationError
from kopf._testing.standstill import StandstillGuard, describe_busy_tasks
from kopf._testing.trouble import Trouble
from kopf._testing.virtual_time import VirtualTimeLoop, make_numbered_task
from kopf._testing.wall_clock import SimulatedClock
from kopf._values.wall_clock import wall_clock

T = TypeVar("T")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""The date and time in the beginning of every simulation, unless it is told otherwise."""
USER = "operator"
"""The name of the user that the operator is for the cluster, by default."""
_CALM, _LIMIT = 1.0, 3600.0
_NOISE = {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}  # written for ever, with no reason


class Simulation(SimulatedObjects, SimulatedOperator):
    """
    An operator and a cluster in one event loop, whose time jumps when there is nothing to do.

    It is an asynchronous context manager for a loop with virtual time: that of the pytest fixture ``simulation``, of
    :func:`simulate`, or of :class:`SyncSimulation`. Everything begins when the context begins: the cluster, then the
    operator; and nothing is left when it ends.

    Large because it is what tests see: all verbs are here, and what is behind them is elsewhere.

    :param paths: the files of the operator, as for ``kopf run``; they are loaded anew.
    :param modules: the modules of the operator, as for ``kopf run -m``; they are loaded anew, too.
    :param registry: the handlers, if they are neither in the files nor in the default registry.
    :param settings: the settings that every life of the operator begins with, or a function that makes them.
    :param namespaces: the namespaces for the operator to serve; the whole cluster by default.
    :param crds: what to apply before the operator starts: custom resource definitions, usually.
    :param seed: where all random decisions come from.
    :param start: the date and time of the beginning. All timestamps come from there, both on the objects and in the
        kwargs of handlers.
    :param freeze_wall_clock: whether ``time.time()``, ``datetime.now()``, etc. tell the virtual time to everybody in
        this process; by default, if the library for it is there, ``time-machine``.
    :param operator: whether the operator is started in the beginning; otherwise, it is up to :meth:`restart`.
    :param user: the name of the user that the operator is for the cluster.
    :param groups: the groups of this user; with ``authorization="rbac"``, there are usually none.
    :param patience: how long a handler may take of the real time, in seconds: for what hangs, not for what is slow.
    :param slack: how much longer everything may take than the test says, in seconds of the virtual time: until it
        counts as settled, and until waiting fails. It is for tests that are run with trouble they do not know of.
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
        """Large because each option is a choice of the test, and they are described above."""
        super().__init__()
        if patience <= 0:
            raise ValueError(f"The patience must be some seconds, not {patience:g}.")
        self.user = user
        self.seed = seed
        self.cluster = kopf_cluster.LocalCluster(seed=seed, **cluster)
        self.journal = Journal(lambda: self.now)
        self.logs = SimulatedLogs(lambda: self.now)
        """What the operator has logged."""
        self.faults = Trouble(self)
        """Trouble to be made."""
        self._paths = [str(path) for path in paths]
        self._modules = [*modules]
        self._registry = registry
        self._settings = settings
        self._namespaces = namespaces
        self._crds: Sequence[Manifests] = [crds] if isinstance(crds, str | pathlib.Path | Mapping) else crds
        self._clock = SimulatedClock(start, is_frozen=freeze_wall_clock)
        self._is_operator_wanted = operator
        self._groups = [*groups]
        self._kubeconfig: pathlib.Path | None = None
        self._patience = patience
        self._own_loop: VirtualTimeLoop | None = None
        self._slack = slack
        self._appointments = Appointments(user, self._fail)
        self._standstill = StandstillGuard()
        self._stack = contextlib.AsyncExitStack()
        self._problem: SimulationError | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._news, self._activity, self._activity_before = asyncio.Event(), 0, -1

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
            if self._problem is not None:  # whatever is stuck or blocked, would never let it exit in order
                await self.crash_now()
            await self.end_life()
        finally:
            await self._stack.aclose()

    async def _begin(self) -> None:
        registry = load_anew(self._paths, self._modules, self._registry)
        randomness = random.getstate()
        self._stack.callback(random.setstate, randomness)
        random.seed(self.seed)
        self._clock.follow(self._loop)
        self.cluster.faults.clock.tell = self._clock.tell
        await self._stack.enter_async_context(self.cluster)
        self._kubeconfig = await self.cluster.open_plain_port(self.user, self._groups)
        self._stack.enter_context(self._clock.freezing())  # not before: certificates are for the real time
        token = wall_clock.set(self._clock.tell)
        self._stack.callback(self._forget_clock, token)
        self._stack.enter_context(offering_kubeconfig(str(self._kubeconfig)))
        self.logs.addFilter(SilencingFilter())
        self._stack.enter_context(self.logs.taking())
        self._stack.enter_context(sleeping_virtually(self._loop))
        self._stack.enter_context(running_as_jobs(self._loop))
        self._stack.enter_context(BlockingGuard(self._loop, self._patience, self._fail).watching())
        self._loop.on_busy, self._loop.overlaps = self._note_busyness, self.journal.overlaps
        self._loop.on_stuck = lambda problem: self._fail(SimulationError(problem))
        self.cluster.observe(self._note_change)
        self.cluster.faults.advisers += [self._crashes.advise, self._appointments.advise]
        self.cluster.add_token("simulated-operator", self.user, self._groups)
        self._birth = Birth(
            cluster=self.cluster, registry=registry, settings=self._settings, namespaces=self._namespaces,
            token="simulated-operator", journal=self.journal, context=contextvars.copy_context(),
        )
        self._loop.set_task_factory(make_task)
        self._stack.callback(self._loop.set_task_factory, make_numbered_task)
        for manifests in self._crds:
            await self.apply(manifests)
        if self._is_operator_wanted:
            await self.restart()
            await self._loop.be_idle()  # it watches already: what the test does first, comes to it as events

    @staticmethod
    def _forget_clock(token: Any) -> None:
        with contextlib.suppress(ValueError):  # the context is another one: it has never been set there
            wall_clock.reset(token)

    # Time.

    @property
    def _loop(self) -> VirtualTimeLoop:
        if self._own_loop is None:
            raise SimulationError(NOT_BEGUN)
        return self._own_loop

    @property
    def now(self) -> float:
        """How long it has been since the beginning of the simulation, in seconds of the virtual time."""
        return self._loop.elapsed

    @property
    def wall_clock(self) -> datetime.datetime:
        """The date and time in the simulation."""
        return self._clock.tell()

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let so much time pass. All that is due by then, is done; with no time, what can be done at once."""
        duration = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not math.isfinite(duration):
            raise ValueError(f"The time goes forward by some seconds, not by {duration}.")
        if duration < 0:
            raise ValueError("The time goes forward only. To move the wall clock, use simulation.faults.clock_jump().")
        await self.wait(self._advance(duration))

    async def _advance(self, duration: float) -> None:
        await asyncio.sleep(duration)
        await self._loop.be_idle()

    async def settle(self, *, calm: float = _CALM, timeout: float = _LIMIT) -> None:
        """
        Let the time pass until nothing is to be done but waiting: for a timer, for a retry, for a change.

        That is when nothing has happened for ``calm`` seconds: no handler was called, no object was changed. Trouble
        that ends by itself, is waited for. If it does not come so within ``timeout`` seconds, it is an error, which
        tells what goes on.
        """
        await self.wait(self._settle(self._crashes.delay + calm + self._slack, timeout))

    async def _settle(self, calm: float, timeout: float) -> None:
        deadline = self.now + timeout
        while True:
            before, lag = self._activity, self.cluster.faults.watch_lag
            await asyncio.sleep(calm + max(self.faults.remaining, lag.most if lag is not None else 0.0))
            if self._activity == before:
                return
            if self.now >= deadline:
                latest = "\n".join(map(str, list(self.journal)[-20:]))
                raise SimulationError(f"It does not settle in {timeout:g} seconds. This has happened last:\n{latest}")

    async def until(self, condition: Callable[[], object], *, timeout: float = 60.0) -> None:
        """
        Let the time pass until the condition is true; it is a function, which can be asynchronous.

        Raises :class:`TimeoutError` if it is not true in so many seconds.
        """
        if not callable(condition):
            raise TypeError(f"The condition must be a function, which is called again and again, not {condition!r}.")
        if not await self.wait(self._check_until(condition, timeout + self._slack)):
            raise TimeoutError(f"It has not come so in {timeout:g} seconds: {_describe(condition)}")

    async def _check_until(self, condition: Callable[[], object], timeout: float) -> bool:
        deadline = self.now + timeout
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return True
            if self.now >= deadline:
                return False
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(1.0, deadline - self.now))

    async def expect(
        self, kind: str | Mapping[str, Any], name: str = "", *, namespace: str = "default", within: float = 60.0,
        **wanted: Unpack[Wanted],
    ) -> Obj:
        """
        Let the time pass until the object is as expected, and give it so; else, fail with its whole timeline.

        The object is given by its kind and name, or by itself as it once was. It is expected to have the ``value`` in
        the ``field`` (``field="status.phase", value="Ready"``), or any value if none is named; or to satisfy the
        ``condition``, a function of the object; or, with ``absent=True``, not to be there. With nothing of that, it is
        just expected to be there.
        """
        place = await self.wait(locate(self, kind, name, namespace))
        return await self.wait(Expectation(self, place, wanted).wait(within))

    async def timeline(self, kind: str | Mapping[str, Any], name: str = "", *, namespace: str = "default") -> str:
        """Tell all that has happened to the object: calls, changes, logs, in the order of time."""
        place: Place = await self.wait(locate(self, kind, name, namespace))
        return place.describe_timeline(self)

    # What happens.

    @property
    def kubeconfig(self) -> pathlib.Path:
        """
        The path of the operator's kubeconfig for other clients, which talk to the cluster by a real port.

        ``KUBECONFIG`` leads to it as long as the simulation lasts. The administrator's one is that of the cluster.
        """
        if self._kubeconfig is None:
            raise SimulationError(NOT_BEGUN)
        return self._kubeconfig

    def move_wall_clock(self, seconds: float) -> None:
        """Move the wall clock, with no time passing."""
        self._clock.move(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call the function in so many seconds from now on."""
        return self._loop.call_later(seconds, function)

    def real_time(self) -> contextlib.AbstractContextManager[None]:
        """Let the time go as it really goes, as long as this context lasts: for clients in other processes."""
        return self._loop.real_time()

    def when(
        self, *, write: int | None = None, change: int | None = None, step: int | None = None, do: Deed
    ) -> None:
        """
        Let something be done at the n-th moment from now on, of one kind of moments.

        That is when the operator requests a ``write`` (except for those of Kubernetes events): a fault rule, if the
        function gives one, is applied to this request. Or when an object has been changed, by anybody (``change``) or
        by the test (``step``), and no watch tells of that yet.
        """
        match write, change, step:
            case int(number), None, None:
                self._appointments.add("write", number, do)
            case None, int(number), None:
                self._appointments.add("change", number, do)
            case None, None, int(number):
                self._appointments.add("step", number, do)
            case _:
                raise TypeError("One moment is needed: a write, a change, or a step.")

    def notice(self) -> None:
        """Something has happened: it is not calm yet, and who waits, should look again."""
        self._activity += 1
        self._news.set()

    def _note_change(self, seen: kopf_cluster.Observation) -> None:
        if seen.resource in _NOISE:
            return
        changes = describe_changes(seen.before, seen.after) if seen.type == "MODIFIED" else ()
        write = Write(
            time=self.now, resource=seen.resource, namespace=seen.namespace, name=seen.name, author=seen.user,
            type=seen.type, changes=changes,
        )
        self.journal.add(write)
        if problem := self._standstill.note(write):
            self._fail(SimulationError(problem))
        self._appointments.note_change(seen.user)
        self.notice()

    def _note_busyness(self) -> None:
        if self._activity == self._activity_before:
            self._fail(SimulationError(describe_busy_tasks(self._loop)))
        self._activity_before = self._activity

    def _fail(self, problem: SimulationError) -> None:
        self._problem = problem
        if self._waiting is not None:
            self._waiting.cancel()

    async def wait(self, coro: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Wait for what must come, unless there is a problem, or the operator has failed."""
        if (problem := self._find_misuse()) is not None:
            if inspect.iscoroutine(coro):
                coro.close()
            raise problem
        task = asyncio.ensure_future(coro)
        outer, self._waiting = self._waiting, task
        try:
            await asyncio.wait([task])
        finally:
            self._waiting = outer
            task.cancel()
        if self._problem is not None:
            raise self._problem
        self.raise_failure()
        return task.result()

    def _find_misuse(self) -> SimulationError | None:
        if self._own_loop is None:
            return SimulationError(NOT_BEGUN)
        if asyncio.get_running_loop() is not self._own_loop:
            return SimulationError("The simulation has its own event loop: it cannot be used from another one.")
        if current_life.get() is not None:
            return SimulationError("The simulation is for the test: handlers must not use it.")
        return None


def _describe(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
