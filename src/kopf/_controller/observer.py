"""
The observer: whatever an operator does is told to it, where it happens. Metrics, traces, the console, the explanations
are observers.

It is asked for nothing, and no flags tell if there is any: with nobody who observes, a call of an empty method is all
that it costs. It is called at once, by the task in which something happens, before that goes on: so it sees the context
variables of that task, and may set them. It must be quick. Objects and errors can hold secrets, and a lot of memory:
whoever keeps or shows something, takes out what is needed.

The parts that the rooms below call are declared there.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol

from kopf._client.client_observer import ClientObserver, Headers
from kopf._client.resources.targets import Target
from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._controller.pausing import Pause
from kopf._controller.work_queue import WorkQueue
from kopf._handlers.attempt_observer import AttemptObserver
from kopf._handlers.handlers import SpawningHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._health.liveness import Heartbeat
from kopf._values.objects import KubeObject
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._values.replica_state import ReplicaState  # most operators are alone
    from kopf._values.reviews import Response  # most operators have no webhooks

logger = logging.getLogger(__name__)


class RunView(Protocol):
    """A daemon or a timer of an object."""

    @property
    def handler(self) -> SpawningHandler:
        """Whose it is."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its time."""

    @property
    def is_running(self) -> bool:
        """Whether it is not over."""


class ControllerView(FrozenRecord, frozen=True, eq=False):
    """What can be seen of a controller, in any thread. It can change while it is looked at."""

    resource: Resource
    handlers: HandlersOfResource
    queue: WorkQueue[str]
    count_unfinished: Callable[[], int]
    """How many objects something is to be done for, now or later."""
    indices: Mapping[str, Any]
    """All indices of the operator."""
    get_limit: Callable[[], int]
    """How many objects can be handled at once."""
    list_runs: Callable[[], Sequence[RunView]]
    """The daemons and timers of all objects."""
    controller: object
    """The controller itself, for those who know it."""


class WatchedStream(FrozenRecord, frozen=True, eq=False):
    """A target that is listed and watched, for as long as that is permitted and wanted."""

    target: Target
    heartbeat: Heartbeat
    """When there was any sign of life from there."""
    known: Sized
    """What is known of its objects."""


class Review(FrozenRecord, frozen=True, eq=False):
    """An admission review that is to be answered."""

    webhook: str | None
    """For which handler it is, if the server knows."""
    headers: Mapping[str, str]
    """Those of the request that has brought it, if there is one; there can be credentials."""
    is_authenticated: bool
    """Whether the caller has shown a certificate that was verified: anybody can have sent the rest."""
    started: float
    """When it has come, by the clock."""


class Observer(ClientObserver, AttemptObserver):
    """
    Does nothing: the base of those who observe.

    An object is seen, queued, taken by a worker; that one makes one or more passes over it, and decides in each what to
    do.

    Large because it says all that happens in an operator.
    """

    def object_seen(self, resource: Resource, key: str, type: str | None, obj: KubeObject) -> None:
        """
        The state of an object has come on the stream, or from a listing.

        The type is ``ADDED``, ``MODIFIED``, ``DELETED``; ``None`` if it is from a listing.
        """

    def object_queued(self, resource: Resource, key: str) -> None:
        """There is something to do for an object that was neither waiting nor worked on."""

    def work_begun(self, resource: Resource, key: str) -> None:
        """A worker has taken the object."""

    def work_ended(self, resource: Resource, key: str) -> None:
        """The worker has done all that was to be done for the object now."""

    def pass_begun(self, resource: Resource, key: str, obj: KubeObject) -> None:
        """The object is looked at in this state."""

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        """It is decided what to do, for what has happened: which handlers are called, and what is saved then."""

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        """
        All that was to be done is done and saved, or something has failed.

        The object is as it is after that; ``None`` if it is gone. The error is of the framework or of the API: those of
        handlers are in the outcomes of their attempts. The delay, in seconds, is until the next pass; ``None`` if there
        is nothing to do until the object changes, and after conflicts, which are no errors.
        """

    def controller_started(self, controller: ControllerView) -> None:
        """The objects of a resource are handled from now on."""

    def controller_stopped(self, controller: ControllerView) -> None:
        """They are not handled anymore by this controller."""

    def stream_opened(self, stream: WatchedStream) -> None:
        """The target is going to be listed and watched."""

    def stream_closed(self, stream: WatchedStream) -> None:
        """It is not anymore, or not for now."""

    def pause_changed(self, pause: Pause) -> None:
        """The operator has given way to others, or goes on."""

    def share_changed(self, state: ReplicaState) -> None:
        """
        The operator is one of several replicas, and its role or its slots are these now.

        It is told first when the replica has joined the others, and whenever anything of that has changed.
        """

    def slots_taken(self, gaps: Collection[float]) -> None:
        """The operator, which is one of several replicas, got slots that had no owner for so long, in seconds."""

    def peers_seen(self, place: str, identity: str, records: Mapping[str, Any]) -> None:
        """
        A peering object was looked at: the place is for humans, the identity is what the operator is called there.

        The records can be anything; there are none if the object is absent.
        """

    def review_begun(self, review: Review) -> None:
        """A review is going to be answered."""

    def review_ended(self, review: Review, response: Response | None) -> None:
        """It is answered, or cannot be: it made no sense, or nobody waits for the answer anymore."""


_NAMES = [name for base in (Observer, *Observer.__bases__) for name in vars(base) if not name.startswith("_")]
_MAX_COMPLAINTS = 100
"""How many different errors of observers are logged: they can have anything in their texts."""

Tell = Callable[..., None]

_GUARDED = """
    try:
        {0}({1})
    except Exception as e:
        complain(e)
"""


class Observers(Observer):
    """Tells several observers, in their order. Their errors are logged, each once, and hurt nobody."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._complaints: set[tuple[str, str]] = set()

    def add(self, *observers: Observer) -> None:
        """Tell them, too, from now on."""
        self._set([*self._observers, *observers])

    def remove(self, *observers: Observer) -> None:
        """Tell them nothing anymore."""
        self._set([item for item in self._observers if item not in observers])

    def _set(self, observers: Iterable[Observer]) -> None:
        """Have the methods called of those who have them: others cost nothing."""
        self._observers = [*observers]
        for name in _NAMES:
            if callable(getattr(Observer, name)) and name not in ("clock", "request_begun"):
                self.__dict__.pop(name, None)
                if methods := [*_find_methods(self._observers, name)]:
                    setattr(self, name, self._combine(name, methods))

    def _combine(self, name: str, methods: Sequence[Tell]) -> Tell:
        """Guard them. It is code made for these arguments: to pass on any arguments takes as much as to count."""
        _, *parameters = inspect.signature(getattr(Observer, name)).parameters
        arguments = ", ".join(parameters)
        made: dict[str, Any] = {f"method{number}": method for number, method in enumerate(methods)}
        body = "".join(_GUARDED.format(method, arguments) for method in made)
        made["complain"] = functools.partial(self._complain, name)
        exec(f"def tell({arguments}):\n{body}", made)
        tell: Tell = made["tell"]
        return tell

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        """Each can add to what the previous ones have made of the headers."""
        for observer in self._observers:
            try:
                headers = observer.request_begun(method, target, server, headers)
            except Exception as e:
                self._complain("request_begun", e)
        return headers

    def _complain(self, name: str, error: Exception) -> None:
        complaint = name, repr(error)
        if complaint not in self._complaints and len(self._complaints) < _MAX_COMPLAINTS:
            self._complaints.add(complaint)
            logger.error("An observer has failed in %s: %r", name, error, exc_info=error)


def _find_methods(observers: Iterable[Observer], name: str) -> Iterator[Tell]:
    for observer in observers:
        method = getattr(observer, name)
        if getattr(method, "__func__", method) is not getattr(Observer, name):
            yield method
