"""
The collector: the metrics of all operators of this process, for the library of Prometheus.

Each registry of that library has one collector, which stays there forever, while operators come and go. The counts of
former operators remain in the sums, as counters never decrease.
"""

from __future__ import annotations

import itertools
import platform
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kopf._admission.servers.identities import READS
from kopf._controller.observer import Observers
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.families import Snapshot, merge
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._settings.settings import OperatorSettings
from kopf._values.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class OperatorsCollector(Collector):
    """Collects the metrics of all operators."""

    def __init__(self) -> None:
        self._present: list[Metrics] = []
        self._past: dict[str, Snapshot] = {}
        self._lock = threading.Lock()  # operators can be in several threads

    def add(self, metrics: Metrics) -> None:
        """Collect from this operator from now on."""
        with self._lock:
            self._present.append(metrics)

    def remove(self, metrics: Metrics) -> None:
        """Stop collecting from this operator, as it has ended; keep its counts."""
        with self._lock:
            self._present.remove(metrics)
            left = [item for item in metrics.read() if item.kind in ("counter", "histogram")]
            self._past = _merge_all([*self._past.values(), *left])

    def describe(self) -> Iterator[Metric]:
        """Describe the metrics in advance, so that clashes with the users' own metrics are noticed."""
        idle = Metrics(Observers(), OperatorRegistry(), OperatorSettings())
        yield from map(_convert, idle.read())
        yield from _describe_process()

    def collect(self) -> Iterator[Metric]:
        """Get everything as of now."""
        with self._lock:
            snapshots = [item for metrics in self._present for item in metrics.read()]
            merged = _merge_all([*self._past.values(), *snapshots])
        for snapshot in merged.values():
            yield _convert(snapshot)
        yield from _describe_process()


def _merge_all(snapshots: Iterable[Snapshot]) -> dict[str, Snapshot]:
    merged: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        known = merged.get(snapshot.name)
        merged[snapshot.name] = snapshot if known is None else merge(known, snapshot)
    return merged


def _convert(snapshot: Snapshot) -> Metric:
    if snapshot.kind == "histogram":
        histogram = HistogramMetricFamily(snapshot.name, snapshot.help, labels=snapshot.labels)
        for labels, distribution in snapshot.distributions.items():
            names = [*map(str, snapshot.bounds), "+Inf"]
            buckets = [*zip(names, itertools.accumulate(distribution.counts), strict=True)]
            histogram.add_metric(labels, buckets=buckets, sum_value=distribution.total)
        return histogram
    cls = CounterMetricFamily if snapshot.kind == "counter" else GaugeMetricFamily
    family = cls(snapshot.name, snapshot.help, labels=snapshot.labels)
    for labels, value in snapshot.values.items():
        family.add_metric(labels, value)
    return family


def _describe_process() -> Iterator[Metric]:
    """Make the metrics of the process, which are the same for any number of operators."""
    yield CounterMetricFamily(
        "certwatcher_read_certificate", "Certificates of webhook servers read.", value=READS.total
    )
    yield CounterMetricFamily(
        "certwatcher_read_certificate_errors",
        "Certificates of webhook servers that could not be read.",
        value=READS.errors,
    )
    build = {"version": __version__, "python": platform.python_version()}
    yield InfoMetricFamily("kopf_build", "The versions of the operator's parts.", value=build)


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, OperatorsCollector] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def get_collector(registry: CollectorRegistry) -> OperatorsCollector:
    """Get the collector that belongs to the registry."""
    with _making:
        collector = _collectors.get(registry)
        if collector is None:
            collector = _collectors[registry] = OperatorsCollector()
            registry.register(collector)
        return collector
