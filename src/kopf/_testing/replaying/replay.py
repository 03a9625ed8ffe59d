"""
A replay: the handlers run again as they were recorded, in the recorded time, as fast as they can.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.background.stopping import new_event
from kopf._controller.instruments import Instruments, instruments
from kopf._controller.memos import Memo
from kopf._controller.observer import Observer
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.lifecycles import get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.signatures import check_registry
from kopf._operator.running import Operator, OperatorSetup
from kopf._operator.scopes import check, decode_pattern
from kopf._recording.format import RecordingError
from kopf._recording.randomness import Randomness, Shortest
from kopf._settings.settings import OperatorSettings
from kopf._testing.anyio_threads import running_as_jobs
from kopf._testing.environment import offering_kubeconfig
from kopf._testing.guards import BlockingGuard, sleeping_virtually
from kopf._testing.journal import Journal
from kopf._testing.loading_anew import load_anew
from kopf._testing.patience import PATIENCE
from kopf._testing.replaying.book import Book
from kopf._testing.replaying.conductor import Conductor
from kopf._testing.replaying.divergences import Divergence, describe
from kopf._testing.replaying.executor import ReplayingExecutor
from kopf._testing.replaying.improvising import Improviser
from kopf._testing.replaying.recorded_run import RecordedRun
from kopf._testing.replaying.replaying_client import ReplayingClient
from kopf._testing.simulated_logs import SimulatedLogs
from kopf._testing.simulation_errors import SimulationError
from kopf._testing.virtual_events import VirtualEvent
from kopf._testing.virtual_time import VirtualTimeLoop, thread_owner
from kopf._testing.wall_clock import SimulatedClock
from kopf._values.wall_clock import wall_clock

_SERVER = "https://recorded.invalid"
"""Nobody is there, and nobody is ever asked."""
_NOWHERE = "{apiVersion: v1, kind: Config}\n"


@dataclasses.dataclass(kw_only=True)
class Replay:
    """What has come out of a replay. It is true if nothing differs; as a text, it tells what does."""

    divergences: list[Divergence]
    """Where the operator does something else than it was recorded to do; in the order of time."""
    journal: Journal
    """The calls of handlers in the replay."""
    recorded_journal: Journal
    """The calls of handlers in the recording."""
    logs: SimulatedLogs
    """What was logged in the replay."""
    duration: float
    """How long the recording is, in seconds."""
    requests: int
    """How many requests were recorded."""
    is_cut: bool
    """Whether the end of the recording is cut: the operator was killed, or still runs."""
    checkpoint: float | None
    """When the recording begins in fact, in seconds, if its beginning was dropped because of its size."""

    def __bool__(self) -> bool:
        return not self.divergences

    def __str__(self) -> str:
        return "\n".join(self._describe())

    def _describe(self) -> Iterator[str]:
        yield f"{self.duration:.1f} seconds, {len(self.recorded_journal)} calls of handlers, {self.requests} requests."
        if self.checkpoint is not None:
            yield (
                f"The first {self.checkpoint:.1f} seconds were dropped, as the recording was too large: "
                "the operator is replayed as if it was restarted then."
            )
        if self.is_cut:
            yield "The end of the recording is cut: the operator was killed, or still runs. It is replayed up to there."
        if not self.divergences:
            yield "The operator does the same."
            return
        yield f"The operator diverges, {len(self.divergences)} times:"
        yield from describe(self.divergences)


def replay(
    recording: str | pathlib.Path,
    *paths: str | pathlib.Path,
    modules: Iterable[str] = (),
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    patience: float = PATIENCE,
) -> Replay:
    """
    Replay what was recorded by ``kopf run --record``, and tell where the operator diverges from that.

    No cluster is needed, and none is ever asked.

    :param recording: the file.
    :param paths: the files of the operator, as for ``kopf run``; they are loaded anew.
    :param modules: the modules of the operator, as for ``kopf run -m``; they are loaded anew, too.
    :param registry: the handlers, if they are neither in the files nor in the default registry.
    :param settings: the settings that the operator begins with, if they are not the default ones.
    :param patience: how long a handler may take of the real time, in seconds.

    Raises :class:`RecordingError` if the file cannot be read.
    """
    if _is_in_loop():
        raise SimulationError("A replay has a time of its own: call it in a regular function, not in a coroutine.")
    handlers = load_anew([str(path) for path in paths], [*modules], registry)
    check_registry(handlers)
    run = RecordedRun(pathlib.Path(recording))
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_Stage(run, handlers, settings or OperatorSettings(), patience).perform())


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _ReplayingInstruments(Instruments):
    has_webhooks = False

    def __init__(
        self,
        make_client: Callable[[Vault, OperatorSettings, Observer], APIClient],
        instrument: Callable[[HandlerExecutor], HandlerExecutor],
    ) -> None:
        self._make_client = make_client
        self._instrument = instrument

    def make_client(self, vault: Vault, settings: OperatorSettings, observer: Observer) -> APIClient:
        return self._make_client(vault, settings, observer)

    def instrument(self, executor: HandlerExecutor) -> HandlerExecutor:
        return self._instrument(executor)


class _Stage:
    """Where the replay takes place."""

    def __init__(
        self, run: RecordedRun, registry: OperatorRegistry, settings: OperatorSettings, patience: float
    ) -> None:
        self._run = run
        self._registry = registry
        self._settings = settings
        self._patience = patience
        self._problem: SimulationError | None = None
        self._acting: asyncio.Task[None] | None = None

    async def perform(self) -> Replay:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualTimeLoop):
            raise TypeError(f"{loop!r} has no virtual time")
        run, checkpoint = self._run, self._run.checkpoint
        conductor = Conductor(run.entries, loop, 0.0 if checkpoint is None else checkpoint.time, self._stop)
        book = Book(run, conductor)
        journal, logs = Journal(lambda: conductor.now), SimulatedLogs(lambda: conductor.now)
        improviser, randomness = Improviser(run), Randomness(run.seed, Shortest(run.seed))
        tools = _ReplayingInstruments(
            lambda vault, settings, _: ReplayingClient(vault, settings, book, conductor, improviser),
            lambda executor: ReplayingExecutor(executor, book, conductor, journal, randomness),
        )
        loop.patience = self._patience
        loop.on_stuck = lambda problem: self._fail(SimulationError(problem))
        with contextlib.ExitStack() as stack:
            self._enter_time(stack, loop, conductor, randomness)
            stack.enter_context(logs.taking())
            token = instruments.set(tools)
            stack.callback(instruments.reset, token)
            await self._act(book, conductor)
        if self._problem is not None:
            raise self._problem
        return Replay(
            divergences=sorted(book.divergences, key=lambda divergence: divergence.time),
            journal=journal,
            recorded_journal=run.make_journal(),
            logs=logs,
            duration=run.duration,
            requests=len(run.requests),
            is_cut=run.is_cut,
            checkpoint=None if checkpoint is None else checkpoint.time,
        )

    def _enter_time(
        self, stack: contextlib.ExitStack, loop: VirtualTimeLoop, conductor: Conductor, randomness: Randomness
    ) -> None:
        """Let everybody have the recorded time, and nobody a real cluster."""
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kopf-replay-")))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_NOWHERE)
        stack.enter_context(randomness.ruling())
        clock = SimulatedClock(self._run.start, is_frozen=importlib.util.find_spec("time_machine") is not None)
        clock.move(conductor.now)
        clock.follow(loop)
        stack.enter_context(clock.freezing())
        for variable, value in ((wall_clock, clock.tell), (new_event, VirtualEvent), (thread_owner, self)):
            stack.callback(variable.reset, variable.set(value))  # type: ignore[arg-type]
        stack.enter_context(offering_kubeconfig(str(kubeconfig)))
        stack.enter_context(sleeping_virtually(loop))
        stack.enter_context(running_as_jobs(loop))
        stack.enter_context(BlockingGuard(loop, self._patience, self._fail).watching())
        stack.callback(loop.abandon, self)

    async def _act(self, book: Book, conductor: Conductor) -> None:
        vault = Vault(self._settings)
        vault.populate([ConnectionInfo(server=_SERVER)])
        self._acting = acting = asyncio.create_task(Operator(self._make_setup(vault)).run(), name="operator")
        conducting = asyncio.create_task(conductor.run(), name="conductor of the replay")
        try:
            await asyncio.wait([acting, conducting], return_when=asyncio.FIRST_COMPLETED)
            if acting.done() and not acting.cancelled() and (error := acting.exception()) is not None:
                book.note_ending(error)
            await asyncio.wait([conducting])
            conducting.result()
        finally:
            conducting.cancel()
            book.close()
            acting.cancel()
            await asyncio.wait([acting, conducting])
            await vault.close()

    def _make_setup(self, vault: Vault) -> OperatorSetup:
        options: dict[str, Any] = {**self._run.head.get("options", {})}
        peering = self._settings.peering
        namespaces = options.pop("namespaces", ())
        for name in ("standalone", "priority"):
            if options.get(name) is not None:
                setattr(peering, name, options[name])
        if options.get("peering_name") is not None:
            peering.name, peering.mandatory = options["peering_name"], True
        peering.clusterwide = not namespaces
        return OperatorSetup(
            registry=self._registry,
            settings=self._settings,
            lifecycle=get_default_lifecycle(),
            namespaces=check([decode_pattern(item) for item in namespaces]),
            identity=options.get("identity"),
            vault=vault,
            memo=Memo(),
            ready_flag=None,
            endpoint=None,
        )

    def _stop(self) -> None:
        if self._acting is not None:
            self._acting.cancel()

    def _fail(self, problem: SimulationError) -> None:
        self._problem = problem
        self._stop()


__all__ = ["RecordingError", "Replay", "replay"]
