"""
The settings of one operator, with defaults for production. Startup handlers can change every setting.

All times are in seconds. ``None`` means no limit, unless a field says otherwise.
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
"""One delay, or a series of delays that can be iterated repeatedly (possibly infinite); in seconds."""


@dataclasses.dataclass
class ProcessSettings:
    """The process of the operator."""

    ultimate_exiting_timeout: float | None = 10 * 60
    """The time from the request to stop until the process is killed, in seconds."""


@dataclasses.dataclass
class PostingSettings:
    """The Kubernetes events that Kopf posts for the handled objects."""

    enabled: bool = True
    """Whether to post anything, :func:`kopf.event` calls included."""
    level: int = logging.INFO
    """The lowest level of log messages to post."""
    loggers: bool = True
    """Whether to post log messages of objects as events."""
    worker_limit: int | None = None
    """The maximal number of simultaneous requests for events."""
    idle_timeout: float = 1.0
    """Only for compatibility, without any effect."""
    reporting_component: str = "kopf"
    """The ``reportingComponent`` of the events."""
    reporting_instance: str = "dev"
    """The ``reportingInstance`` of the events."""
    event_name_prefix: str = "kopf-event-"
    """The prefix of the names of the events."""
    default_backoffs: Delays = (1, 1, 2, 3, 5, 8, 13, 21)
    """The delays between attempts to post an explicit event, in seconds."""
    logging_backoffs: Delays = (1, 1, 2, 3, 5)
    """The delays between attempts to post a log message, in seconds."""
    aggregation_window: float = 10 * 60
    """The time since the last event in which the same message only increases its count, in seconds."""
    similar_limit: int = 25
    """The number of different messages of one type & reason about one object, after which Kopf combines them."""
    object_burst: int = 50
    """The maximal burst of API calls for events about one object."""
    object_rate: float = 0.2
    """The maximal rate of API calls for events about one object after the burst, per second."""
    total_burst: int = 1000
    """The maximal burst of API calls for all events of the operator."""
    total_rate: float = 20.0
    """The maximal rate of API calls for all events of the operator after the burst, per second."""


MAX_PRIORITY = 2**63 - 1
"""The highest priority of an operator: the JSON of Kubernetes has numbers with 64 bits."""


@dataclasses.dataclass
class PeeringSettings:
    """The awareness of other operators by peering objects."""

    name: str = "default"
    """The name of the peering object."""
    stealth: bool = False
    """Whether to log no keep-alives."""
    priority: int = 0
    """The priority of this operator. Operators with lower priorities pause while it runs."""
    lifetime: int = 60
    """The time after a keep-alive when other operators take this one for dead, in seconds."""
    mandatory: bool = False
    """Whether the operator pauses until the peering object exists."""
    standalone: bool = False
    """Whether to use no peering at all."""
    clusterwide: bool = False
    """Whether to use a cluster-scoped peering object."""

    @property
    def namespaced(self) -> bool:
        """The opposite of :attr:`clusterwide`."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclasses.dataclass
class WatchingSettings:
    """The listing and watching of objects."""

    server_timeout: float | None = None
    """The time of one watch request on the server, in seconds; ``None`` is for the default of the server."""
    client_timeout: float | None = None
    """The time of one watch request in the client, with the connecting, in seconds."""
    connect_timeout: float | None = None
    """The time to connect, in seconds; ``None`` is for ``networking.connect_timeout``, or ``.request_timeout``."""
    reconnect_backoff: float = 0.1
    """The pause between two watch requests, in seconds."""
    inactivity_timeout: float | None = 70.0
    """The time without data after which a watch counts as dead, in seconds. Bookmarks come each minute or so."""
    chunk_size: int | None = None
    """The number of objects in one page of a listing; ``None`` is for 500 at first, and for 2 MiB afterwards."""
    initial_streaming: bool = False
    """Whether to get the initial state as a stream (``sendInitialEvents``) instead of a listing, if possible."""
    label_selectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Label selectors for the server, by the names of resources (``plural.group``)."""
    field_selectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Field selectors for the server, by the names of resources (``plural.group``)."""
    shard_selectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Shard selectors for the server (KEP-5866), by the names of resources (``plural.group``)."""
    push_selectors: bool = True
    """Whether the server selects objects by the labels and names that all handlers of a resource have in common."""


@dataclasses.dataclass
class QueueingSettings:
    """The processing of objects."""

    worker_limit: int | None = None
    """The maximal number of objects of one resource in simultaneous processing."""
    idle_timeout: float = 5.0
    """Only for compatibility, without any effect: idle objects cost nothing."""
    batch_window: float = 0.1
    """Only for compatibility, without any effect: Kopf processes events at once."""
    exit_timeout: float = 2.0
    """The time until the cancellation of the current processing when the operator exits, in seconds."""
    error_delays: Delays = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
    """The pauses of an object after the 1st, 2nd, etc consecutive error of the framework or the API, in seconds."""

    @property
    def _batch_window(self) -> float:
        """The newer name of the setting in the original framework."""
        return self.batch_window

    @_batch_window.setter
    def _batch_window(self, value: float) -> None:
        self.batch_window = value


@dataclasses.dataclass
class ScanningSettings:
    """The discovery of resources and namespaces at runtime."""

    disabled: bool = False
    """Whether to scan only at the start, instead of watching definitions & namespaces."""


@dataclasses.dataclass
class AdmissionSettings:
    """The admission webhooks."""

    server: WebhookServerProtocol | None = None
    """The webhook server or tunnel of the admission handlers, e.g. :class:`kopf.WebhookServer`."""
    managed: str | None = None
    """
    The name of the webhook configurations that the operator creates and updates, with at least two parts, e.g.
    ``"auto.kopf.dev"``. The names of the webhooks end with it. If unset, Kopf does not manage the configurations.
    """
    show_errors: bool = False
    """
    Whether denials contain the texts of arbitrary errors, which can have secrets; for development. Denials always
    contain the texts of :class:`AdmissionError`, :class:`PermanentError`, :class:`TemporaryError`.
    """


@dataclasses.dataclass
class ExecutionSettings:
    """The execution of handlers."""

    default_backoff: float | ExponentialBackoff = 60
    """
    The delay before a retry after an arbitrary error, in seconds, or :func:`kopf.exponential`. Handlers can have their
    own ``backoff``.
    """
    executor: concurrent.futures.Executor = dataclasses.field(default_factory=HandlerThreads)
    """
    The threads of synchronous handlers. If you replace the executor, synchronous daemons use it, too.

    The default executor starts threads on demand.
    """
    _max_workers: int | None = None

    @property
    def max_workers(self) -> int | None:
        """
        The maximal number of simultaneous synchronous handlers.

        With ``None``, there are as many threads as Python uses by default, and more, up to a hundred, if handlers have
        to wait. It has no effect on a replaced :attr:`executor`, which has its own number of threads.

        Raises :class:`ValueError` for numbers below 1.
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
    """The daemons and timers."""

    cancellation_polling: float = 60
    """The time between log lines about a daemon that does not stop, in seconds."""
    instant_exit_timeout: float | None = None
    """Only for compatibility, without any effect."""
    instant_exit_zero_time_cycles: int | None = 10
    """Only for compatibility, without any effect."""


@dataclasses.dataclass
class NetworkingSettings:
    """The requests to the API."""

    request_timeout: float | None = 5 * 60
    """The time of a regular request (not a watch), in seconds."""
    connect_timeout: float | None = None
    """The time of the TCP handshake, in seconds."""
    error_backoffs: Delays = (1, 1, 2, 3, 5, 8, 13, 21)
    """The delays before retries after network errors, HTTP 5xx and 429, in seconds; then, the error escalates."""
    enforce_retry_after: bool = False
    """Whether the ``Retry-After`` of the server replaces the delay. Otherwise, it is the minimal delay."""
    trust_env: bool = False
    """Whether to use proxies from environment variables."""
    client: str = "direct"
    """
    The HTTP client: ``direct`` is the framework's own client; ``aiohttp`` takes 8 MiB of memory and twice the CPU time,
    but accepts malformed HTTP of some proxies.
    """
    strict_x509: bool | None = None
    """
    Whether the certificates of the cluster must strictly follow RFC 5280; ``None`` is for the default of Python: strict
    since 3.13. The certificates of some older clusters do not follow it.
    """


@dataclasses.dataclass
class PersistenceSettings:
    """The state that Kopf stores on objects."""

    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    """The finalizer that holds objects until their deletion handlers, daemons, and timers have finished."""
    progress_storage: ProgressStorage = dataclasses.field(default_factory=SmartProgressStorage)
    """The storage of the progress of handlers."""
    diffbase_storage: DiffBaseStorage = dataclasses.field(default_factory=AnnotationsDiffBaseStorage)
    """The storage of the last handled configuration of objects."""
    consistency_timeout: float = 5.0
    """The time to wait until Kopf's own change appears in the watch stream, in seconds; then, Kopf continues."""


@dataclasses.dataclass
class HealthSettings:
    """The health of the operator."""

    probe_lifetime: float = 5.0
    """The time for which Kopf reuses results of probes, in seconds."""
    stream_timeout: float | None = 5 * 60
    """
    The time without data from a watch stream, with reconnections, after which the operator is unhealthy, in seconds.
    The minimum is twice ``watching.inactivity_timeout``; if that is ``None``, this timeout has no effect.
    """
    loop_timeout: float | None = 10.0
    """The time of a blocked event loop until Kopf logs the blocking code and becomes unhealthy, in seconds."""
    show_errors: bool = False
    """
    Whether responses contain the texts of arbitrary errors, as in :attr:`AdmissionSettings.show_errors`. All clients
    that can reach the port can read them.
    """


@dataclasses.dataclass
class ConsoleSettings:
    """The console: the knowledge and the work of the operator, for people and for ``kopf explain``."""

    endpoint: str | None = None
    """The address of the console, e.g. ``http://127.0.0.1:8090``; by default, there is no console."""
    token: str | None = None
    """
    The token for access to the console, with 16 characters or more; by default, from ``KOPF_CONSOLE_TOKEN``. It is
    mandatory unless only programs of this machine can connect (on the loopback).
    """


@dataclasses.dataclass
class MetricsSettings:
    """The metrics for Prometheus. They need the extra ``kopf[metrics]``."""

    endpoint: str | None = None
    """The address of the metrics: ``http://host:port/path``; the port can be the port of the health."""
    enabled: bool = False
    """Whether to collect metrics without an endpoint: for applications that serve the registry themselves."""
    registry: CollectorRegistry | None = None
    """The registry to serve, with the metrics of the operator; ``None`` is for the default registry."""


@dataclasses.dataclass
class TracingSettings:
    """The traces for OpenTelemetry. They need the extra ``kopf[tracing]``."""

    enabled: bool | None = None
    """Whether to make traces; ``None`` is for yes if OpenTelemetry is configured in this process."""
    provider: TracerProvider | None = None
    """The provider of tracers; ``None`` is for the provider of the process."""


@dataclasses.dataclass
class OperatorSettings:
    """All settings of one operator: the ``settings`` of startup handlers. Each operator in a process has its own."""

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
    """Copy the settings for an operator that must not change the settings of its caller."""
    executor = settings.execution.executor  # threads are the only setting that cannot be copied
    own = HandlerThreads(settings.execution.max_workers) if isinstance(executor, HandlerThreads) else executor
    return copy.deepcopy(settings, {id(executor): own})


def set_peering(settings: OperatorSettings, *, standalone: bool | None, priority: int | None, name: str | None) -> None:
    """Set the given options of the peering. A named peering object must exist."""
    if standalone is not None:
        settings.peering.standalone = standalone
    if priority is not None:
        settings.peering.priority = priority
    if name is not None:
        settings.peering.name, settings.peering.mandatory = name, True


def settle_coordination(settings: OperatorSettings, *, has_replicas: bool = True) -> None:
    """
    Check the final settings of the coordination, and by default, disable the peering if there is a coordination.

    If there can be no replicas, e.g. in a replay, disable the coordination, too. A named peering object or a priority
    keeps the peering enabled. Raises :class:`OperatorError` with the problem.
    """
    if settings.coordination.mode is not None and not settings.peering.mandatory and not settings.peering.priority:
        settings.peering.standalone = True
    if not has_replicas:
        settings.coordination.mode = None
    check_coordination(settings.coordination)


def iter_delays(delays: Delays) -> Collection[float] | Iterable[float]:
    """Normalise a setting of delays: one number becomes a series of one."""
    return (delays,) if isinstance(delays, int | float) else delays
