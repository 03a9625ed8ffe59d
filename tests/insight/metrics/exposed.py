"""What is exposed, as the strictest of parsers understands it."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.samples import Sample

#: The names of the design, as they are after `# TYPE`.
DESIGNED = {
    "controller_runtime_reconcile",
    "controller_runtime_reconcile_errors",
    "controller_runtime_terminal_reconcile_errors",
    "controller_runtime_reconcile_time_seconds",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "controller_runtime_webhook_latency_seconds",
    "controller_runtime_webhook_requests",
    "controller_runtime_webhook_requests_in_flight",
    "workqueue_depth",
    "workqueue_adds",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries",
    "rest_client_requests",
    "rest_client_request_duration_seconds",
    "rest_client_request_retries",
    "leader_election_master_status",
    "certwatcher_read_certificate",
    "certwatcher_read_certificate_errors",
    "kopf_handler_duration_seconds",
    "kopf_handler_retries",
    "kopf_handlers_failed",
    "kopf_watch_lag_seconds",
    "kopf_watch_last_activity_seconds",
    "kopf_watch_restarts",
    "kopf_objects",
    "kopf_index_size",
    "kopf_daemons_running",
    "kopf_timers_waiting",
    "kopf_own_writes",
    "kopf_events_posted",
    "kopf_events_dropped",
    "kopf_eventloop_lag_seconds",
    "kopf_build",
}


class Exposed:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        families = [*parser.text_string_to_metric_families(text)]  # type: ignore[no-untyped-call]
        self.families = {family.name: family.type for family in families}
        self.samples: list[Sample] = [sample for family in families for sample in family.samples]

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Exposed:
        return cls(exposition.generate_latest(registry).decode())  # type: ignore[no-untyped-call]

    def select(self, name: str, /, **labels: str) -> list[Sample]:
        """The samples with these labels at least."""
        return [item for item in self.samples if item.name == name and labels.items() <= item.labels.items()]

    def sum(self, name: str, /, **labels: str) -> float:
        """The sum of those; there must be any."""
        selected = self.select(name, **labels)
        assert selected, (name, labels, [item for item in self.samples if item.name == name])
        return sum(item.value for item in selected)

    def group(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The sums by these labels, without zeros."""
        sums: dict[tuple[str, ...], float] = collections.defaultdict(float)
        for item in self.select(name):
            sums[tuple(item.labels[label] for label in labels)] += item.value
        return {key: value for key, value in sums.items() if value}


def count(items: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    return {key: float(value) for key, value in collections.Counter(items).items()}
