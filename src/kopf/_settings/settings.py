"""
The settings of one operator: everything that can be tuned in a startup handler, with production defaults.

All durations are in seconds. ``None`` means no limit unless a field says otherwise.
"""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import logging
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kopf._settings.coordination import CoordinationSettings, check_coordination
from kopf._settings.threads import HandlerThreads
from kopf._storage.diffbase import AnnotationsDiffBaseStorage, DiffBaseStorage
from kopf._storage.progress import ProgressStorage, SmartProgressStorage

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from kopf._values.backoffs import ExponentialBackoff
    from kopf._values.reviews import WebhookServerProtocol

Delays = float | Iterable[float]
"""One delay or a re-iterable series of them (possibly infinite)."""


@dataclasses.dataclass
class ProcessSettings:
    """The operating-system process."""

    ultimate_exiting_timeout: float | None = 10 * 60
    """How long the exit may take after a stop is requested, until the process is ended by force."""


@dataclasses.dataclass
class PostingSettings:
    """Kubernetes events that are posted for the handled objects."""

    enabled: bool = True
    """Whether anything is posted at all, explicit :func:`kopf.event` calls included."""
    level: int = logging.INFO
    """The lowest level of the log messages to post."""
    loggers: bool = True
    """Whether log messages of the objects are posted as events."""
    worker_limit: int | None = None
    """How many posting requests may run at the same time."""
    idle_timeout: float = 1.0
    """Accepted for compatibility; idle posting costs nothing."""
    reporting_component: str = "kopf"
    reporting_instance: str = "dev"
    event_name_prefix: str = "kopf-event-"
    default_backoffs: Delays = (1, 1, 2, 3, 5, 8, 13, 21)
    """Delays between attempts to post an explicit event."""
    logging_backoffs: Delays = (1, 1, 2, 3, 5)
    """Delays between attempts to post a log message."""
    aggregation_window: float = 10 * 60
    """For how long the same message about the same object is counted on the existing event, since the last time."""
    similar_limit: int = 25
    """How many different messages of one type & reason about one object are posted before they are combined."""
    object_burst: int = 50
    """How many API calls may be made at once for the events about one object."""
    object_rate: float = 0.2
    """How many of them per second may be made after that."""
    total_burst: int = 1000
    """How many API calls may be made at once for all events of the operator."""
    total_rate: float = 20.0
    """How many of them per second may be made after that."""


MAX_PRIORITY = 2**63 - 1
"""The priorities of operators are numbers in the JSON of Kubernetes, i.e. of 64 bits: larger ones are rounded."""


@dataclasses.dataclass
class PeeringSettings:
    """Awareness of other operators via peering objects."""

    name: str = "default"
    stealth: bool = False
    """Whether keep-alives are left out of the logs."""
    priority: int = 0
    lifetime: int = 60
    """For how long after a keep-alive this operator is considered alive by others."""
    mandatory: bool = False
    """Whether the operator pauses until the peering object exists."""
    standalone: bool = False
    """Whether there is no peering at all."""
    clusterwide: bool = False

    @property
    def namespaced(self) -> bool:
        """The opposite of :attr:`clusterwide`."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclasses.dataclass
class WatchingSettings:
    """Listing and watching."""

    server_timeout: float | None = None
    """How long the server keeps one watch request; ``None`` leaves that to the server."""
    client_timeout: float | None = None
    """How long we keep one watch request, including the connecting."""
    connect_timeout: float | None = None
    """``None`` means ``networking.connect_timeout``, and if unset, ``networking.request_timeout``."""
    reconnect_backoff: float = 0.1
    """The pause between one watch request and the next one."""
    inactivity_timeout: float | None = 70.0
    """How long a watch may send nothing (bookmarks come every minute or so) until it is considered dead."""
    chunk_size: int | None = None
    """How many objects to request in one page of a listing; ``None`` is for 500 at first, and for 2 MiB afterwards."""
    initial_streaming: bool = False
    """Whether to get the initial state as a stream (``sendInitialEvents``) instead of a listing, if the server can."""
    label_selectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Server-side restrictions by labels: the resource's name (``plural.group``) to a label selector."""
    field_selectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Server-side restrictions by fields: the resource's name (``plural.group``) to a field selector."""
    shard_selectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Server-side sharding (KEP-5866): the resource's name (``plural.group``) to a shard selector."""
    push_selectors: bool = True
    """Whether the server selects the objects by what all handlers of a resource agree on: labels, names."""


@dataclasses.dataclass
class QueueingSettings:
    """How the objects are processed."""

    worker_limit: int | None = None
    """How many objects of one resource may be processed at the same time."""
    idle_timeout: float = 5.0
    """Accepted for compatibility; idle objects cost nothing."""
    batch_window: float = 0.1
    """Accepted for compatibility; events are processed at once."""
    exit_timeout: float = 2.0
    """How long the objects being processed may continue when the operator exits, until they are cancelled."""
    error_delays: Delays = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
    """How long to leave an object alone after the 1st, 2nd, etc error of the framework or the API in a row."""

    @property
    def _batch_window(self) -> float:
        """The newer name of it in the original framework."""
        return self.batch_window

    @_batch_window.setter
    def _batch_window(self, value: float) -> None:
        self.batch_window = value


@dataclasses.dataclass
class ScanningSettings:
    """Discovery of resources and namespaces at runtime."""

    disabled: bool = False
    """Whether to only scan once at the start, and not to watch the definitions & namespaces."""


@dataclasses.dataclass
class AdmissionSettings:
    """Admission webhooks."""

    server: WebhookServerProtocol | None = None
    """Who brings the reviews to the admission handlers: a webhook server or a tunnel, see :class:`WebhookServer`."""
    managed: str | None = None
    """
    The name of the webhook configurations that the operator creates and updates, e.g. ``"auto.kopf.dev"``: of at least
    two parts. The names of the webhooks end with it. If unset, the configurations are not managed.
    """
    show_errors: bool = False
    """
    Whether those whose changes are denied see the texts of arbitrary errors, which can have secrets in them. Those of
    :class:`AdmissionError`, :class:`PermanentError`, :class:`TemporaryError` are always shown. For development.
    """


@dataclasses.dataclass
class ExecutionSettings:
    """How handlers are executed."""

    default_backoff: float | ExponentialBackoff = 60
    """
    The delay before the next attempt after an arbitrary error, unless the handler has its own: seconds, or
    :func:`kopf.exponential`.
    """
    executor: concurrent.futures.Executor = dataclasses.field(default_factory=HandlerThreads)
    """
    Where synchronous handlers run. If it is replaced, synchronous daemons run there too.

    The default one has no threads until it is used.
    """
    _max_workers: int | None = None

    @property
    def max_workers(self) -> int | None:
        """
        How many synchronous handlers may run at the same time.

        ``None`` is for a few threads (as many as Python usually has), to which more are added, up to a hundred, when
        the handlers have to wait. It has no effect on a replaced :attr:`executor`, which has a number of its own.
        """
        return self._max_workers

    @max_workers.setter
    def max_workers(self, value: int) -> None:
        if value < 1:
            raise ValueError(f"The number of workers must be 1 or more, got {value!r}.")
        self._max_workers = value
        if isinstance(self.executor, HandlerThreads):
            self.executor.max_workers = value


@dataclasses.dataclass
class BackgroundSettings:
    """Daemons and timers."""

    cancellation_polling: float = 60
    instant_exit_timeout: float | None = None
    instant_exit_zero_time_cycles: int | None = 10


@dataclasses.dataclass
class NetworkingSettings:
    """Requests to the API."""

    request_timeout: float | None = 5 * 60
    """How long a regular request may take (not a watch)."""
    connect_timeout: float | None = None
    """How long the TCP handshake may take."""
    error_backoffs: Delays = (1, 1, 2, 3, 5, 8, 13, 21)
    """Delays between attempts for network errors, HTTP 5xx and 429; afterwards the error escalates."""
    enforce_retry_after: bool = False
    """Whether the ``Retry-After`` of the server replaces the delay, instead of being the minimum of it."""
    trust_env: bool = False
    """Whether proxies from the environment variables are used."""
    client: str = "direct"
    """
    What makes the requests: ``direct`` is the framework's own client, ``aiohttp`` is that library, which takes 8 MiB of
    memory and twice the CPU time, but accepts what some proxies make of HTTP.
    """
    strict_x509: bool | None = None
    """
    Whether the certificates of the cluster must follow RFC 5280 to the letter; ``None`` is for the default of Python,
    which is strict since 3.13. Some older clusters have certificates that do not.
    """


@dataclasses.dataclass
class PersistenceSettings:
    """What is stored on the objects."""

    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    progress_storage: ProgressStorage = dataclasses.field(default_factory=SmartProgressStorage)
    diffbase_storage: DiffBaseStorage = dataclasses.field(default_factory=AnnotationsDiffBaseStorage)
    consistency_timeout: float = 5.0
    """How long to wait for our own change to come back in the watch stream, until the stream is trusted anyway."""


@dataclasses.dataclass
class HealthSettings:
    """What the health of the operator is judged by."""

    probe_lifetime: float = 5.0
    """For how long the results of the probe handlers are reused, however often they are asked for."""
    stream_timeout: float | None = 5 * 60
    """
    How long nothing may come from a watch stream, reconnections included, until it is considered broken; but not less
    than twice ``watching.inactivity_timeout``, and if that is ``None``, it is never considered so.
    """
    loop_timeout: float | None = 10.0
    """How long the event loop may be blocked until the culprit is logged, and until it is considered broken."""
    show_errors: bool = False
    """
    Whether those who ask see the texts of arbitrary errors, as in :attr:`AdmissionSettings.show_errors`. Anybody who
    can reach the port can ask.
    """


@dataclasses.dataclass
class ConsoleSettings:
    """The console: what the operator knows and does, shown to people and to ``kopf explain``."""

    endpoint: str | None = None
    """Where it is served, e.g. ``http://127.0.0.1:8090``; by default, it is not."""
    token: str | None = None
    """
    Who knows it may look; 16 characters or more. If unset, it is taken from ``KOPF_CONSOLE_TOKEN``. It is needed where
    others than the programs of this machine can connect; on the loopback, there may be none.
    """


@dataclasses.dataclass
class MetricsSettings:
    """The metrics for Prometheus; they need the extra ``kopf[metrics]``."""

    endpoint: str | None = None
    """Where they are served: ``http://host:port/path``; the port can be the one of the health."""
    enabled: bool = False
    """Whether they are there even with no endpoint: for those who serve the registry by themselves."""
    registry: CollectorRegistry | None = None
    """Whose metrics are served, and to which those of the operator are added; ``None`` is for the default one."""


@dataclasses.dataclass
class TracingSettings:
    """The traces for OpenTelemetry; they need the extra ``kopf[tracing]``."""

    enabled: bool | None = None
    """Whether they are made; ``None`` is for yes if OpenTelemetry is configured in this process."""
    provider: TracerProvider | None = None
    """What makes them; ``None`` is for the one of the process."""


@dataclasses.dataclass
class OperatorSettings:
    """All settings of one operator. Every operator in a process has its own."""

    process: ProcessSettings = dataclasses.field(default_factory=ProcessSettings)
    posting: PostingSettings = dataclasses.field(default_factory=PostingSettings)
    peering: PeeringSettings = dataclasses.field(default_factory=PeeringSettings)
    coordination: CoordinationSettings = dataclasses.field(default_factory=CoordinationSettings)
    watching: WatchingSettings = dataclasses.field(default_factory=WatchingSettings)
    queueing: QueueingSettings = dataclasses.field(default_factory=QueueingSettings)
    scanning: ScanningSettings = dataclasses.field(default_factory=ScanningSettings)
    admission: AdmissionSettings = dataclasses.field(default_factory=AdmissionSettings)
    execution: ExecutionSettings = dataclasses.field(default_factory=ExecutionSettings)
    background: BackgroundSettings = dataclasses.field(default_factory=BackgroundSettings)
    networking: NetworkingSettings = dataclasses.field(default_factory=NetworkingSettings)
    persistence: PersistenceSettings = dataclasses.field(default_factory=PersistenceSettings)
    health: HealthSettings = dataclasses.field(default_factory=HealthSettings)
    console: ConsoleSettings = dataclasses.field(default_factory=ConsoleSettings)
    metrics: MetricsSettings = dataclasses.field(default_factory=MetricsSettings)
    tracing: TracingSettings = dataclasses.field(default_factory=TracingSettings)

    @property
    def batching(self) -> QueueingSettings:
        """The older name of :attr:`queueing`."""
        warnings.warn("settings.batching is now settings.queueing; please rename.", DeprecationWarning, stacklevel=2)
        return self.queueing


def copy_settings(settings: OperatorSettings) -> OperatorSettings:
    """Make settings of one's own, for an operator that must not change those of the caller."""
    executor = settings.execution.executor  # of all settings, only threads cannot be copied
    own = HandlerThreads(settings.execution.max_workers) if isinstance(executor, HandlerThreads) else executor
    return copy.deepcopy(settings, {id(executor): own})


def set_peering(settings: OperatorSettings, *, standalone: bool | None, priority: int | None, name: str | None) -> None:
    """Set those options of the peering that are given; an object that is named must exist."""
    if standalone is not None:
        settings.peering.standalone = standalone
    if priority is not None:
        settings.peering.priority = priority
    if name is not None:
        settings.peering.name, settings.peering.mandatory = name, True


def settle_coordination(settings: OperatorSettings, *, has_replicas: bool = True) -> None:
    """
    Check the coordination of the replicas when all settings are known; with it, there is no peering by default.

    If there can be no replicas, e.g. in a replay, there is no coordination, whatever the settings say. Whoever names a
    peering object, or has a priority, wants the peering. Raises :class:`OperatorError` with what is wrong.
    """
    if not has_replicas:
        settings.coordination.mode = None
    check_coordination(settings.coordination)
    if settings.coordination.mode is not None and not settings.peering.mandatory and not settings.peering.priority:
        settings.peering.standalone = True


def iter_delays(delays: Delays) -> Collection[float] | Iterable[float]:
    """Normalise a setting of delays: one number is a series of one."""
    return (delays,) if isinstance(delays, int | float) else delays
