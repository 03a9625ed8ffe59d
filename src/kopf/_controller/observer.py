"""
The observer: the operator reports everything it does to it. Metrics, traces, the console, and explanations are
observers.

An observer returns nothing, and no flag tells if there is one: without observers, a report costs one call of an empty
method. The task in which something happens makes the call before it goes on, so the observer sees the context variables
of that task, and may set them. It must be quick. Objects and errors can hold secrets and much memory: an observer keeps
or shows only the parts that it needs.

The rooms below declare the methods that they call.
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
from kopf._handlers.attempts import AttemptObserver
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
        """The handler that it runs."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its next call."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""


class ControllerView(FrozenRecord, frozen=True, eq=False):
    """The visible part of a controller, for any thread. It can change during the reading."""

    resource: Resource
    handlers: HandlersOfResource
    queue: WorkQueue[str]
    count_unfinished: Callable[[], int]
    """Counts the objects with something to do, now or later."""
    indices: Mapping[str, Any]
    """All indices of the operator."""
    get_limit: Callable[[], int]
    """Returns how many objects can be handled at once."""
    list_runs: Callable[[], Sequence[RunView]]
    """Lists the daemons and timers of all objects."""
    controller: object
    """The controller itself, for observers that know its class."""


class WatchedStream(FrozenRecord, frozen=True, eq=False):
    """A target that is listed and watched, as long as this is permitted and wanted."""

    target: Target
    heartbeat: Heartbeat
    """The time of the last sign of life."""
    known: Sized
    """The known objects."""


class Review(FrozenRecord, frozen=True, eq=False):
    """An admission review under way."""

    webhook: str | None
    """The id of its handler, if the server knows it."""
    headers: Mapping[str, str]
    """The headers of its request, if there is one; they can contain credentials."""
    is_authenticated: bool
    """Whether the caller has presented a verified certificate; without it, anybody can be the sender."""
    started: float
    """The time of its arrival, by the clock of the observer."""


class Observer(ClientObserver, AttemptObserver):
    """
    The base of all observers; it does nothing.

    An object is seen, then queued, then taken by a worker, which makes one or more passes over it, each with a
    decision.

    Large because it reports everything that happens in an operator.
    """

    def object_seen(self, resource: Resource, key: str, type: str | None, obj: KubeObject) -> None:
        """
        The state of an object has come from the stream or from a listing.

        The type is ``ADDED``, ``MODIFIED``, or ``DELETED``; ``None`` for a listing.
        """

    def object_queued(self, resource: Resource, key: str) -> None:
        """There is something to do for an object that was neither queued nor with a worker."""

    def work_begun(self, resource: Resource, key: str) -> None:
        """A worker has taken the object."""

    def work_ended(self, resource: Resource, key: str) -> None:
        """The worker has done everything for the object for now."""

    def pass_begun(self, resource: Resource, key: str, obj: KubeObject) -> None:
        """A pass over the object in this state begins."""

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        """The pass has detected a change, and has decided which handlers to call, and what to save afterwards."""

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
        The pass has done and saved everything, or has failed.

        ``obj`` is the object after the pass; ``None`` if it is gone. ``error`` is an error of the framework or of the
        API; the errors of handlers are in the outcomes of their attempts. ``delay`` is the time until the next pass, in
        seconds; ``None`` if there is nothing to do until the object changes, and after conflicts, which are no errors.
        """

    def controller_started(self, controller: ControllerView) -> None:
        """A controller begins to handle the objects of a resource."""

    def controller_stopped(self, controller: ControllerView) -> None:
        """The controller has stopped."""

    def stream_opened(self, stream: WatchedStream) -> None:
        """The listing and watching of the target begins."""

    def stream_closed(self, stream: WatchedStream) -> None:
        """The listing and watching of the target ends, possibly for a while only."""

    def pause_changed(self, pause: Pause) -> None:
        """The operator has given way to others, or goes on."""

    def share_changed(self, state: ReplicaState) -> None:
        """
        The role or the slots of this replica of the operator have changed.

        The first call is when the replica has joined the others.
        """

    def slots_taken(self, gaps: Collection[float]) -> None:
        """The operator, which is one of several replicas, got slots that had no owner for so long, in seconds."""

    def peers_seen(self, place: str, identity: str, records: Mapping[str, Any]) -> None:
        """
        The operator has read a peering object: the place is for humans, the identity is that of this operator.

        The records can have any content; there are none if the object is absent.
        """

    def review_begun(self, review: Review) -> None:
        """The processing of a review begins."""

    def review_ended(self, review: Review, response: Response | None) -> None:
        """The review has its response; ``None`` if it was malformed, or the client does not wait anymore."""


_NAMES = [name for base in (Observer, *Observer.__bases__) for name in vars(base) if not name.startswith("_")]
_MAX_COMPLAINTS = 100
"""The maximum of different errors of observers that are logged, since their texts can vary without limits."""

Tell = Callable[..., None]

_GUARDED = """
    try:
        {0}({1})
    except Exception as e:
        complain(e)
"""


class Observers(Observer):
    """Reports to several observers, in their order. Logs each of their errors once, and goes on."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._complaints: set[tuple[str, str]] = set()

    def add(self, *observers: Observer) -> None:
        """Begin to report to these observers."""
        self._set([*self._observers, *observers])

    def remove(self, *observers: Observer) -> None:
        """Stop reporting to these observers."""
        self._set([item for item in self._observers if item not in observers])

    def _set(self, observers: Iterable[Observer]) -> None:
        """Combine the methods that the observers implement; the others cost nothing."""
        self._observers = [*observers]
        for name in _NAMES:
            if callable(getattr(Observer, name)) and name not in ("clock", "request_begun"):
                self.__dict__.pop(name, None)
                if methods := [*_find_methods(self._observers, name)]:
                    setattr(self, name, self._combine(name, methods))

    def _combine(self, name: str, methods: Sequence[Tell]) -> Tell:
        """Guard the methods by generated code, since passing on ``*args`` costs as much as a counter itself."""
        _, *parameters = inspect.signature(getattr(Observer, name)).parameters
        arguments = ", ".join(parameters)
        made: dict[str, Any] = {f"method{number}": method for number, method in enumerate(methods)}
        body = "".join(_GUARDED.format(method, arguments) for method in made)
        made["complain"] = functools.partial(self._complain, name)
        exec(f"def tell({arguments}):\n{body}", made)
        tell: Tell = made["tell"]
        return tell

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        """Let each observer add to the headers of the previous ones."""
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
