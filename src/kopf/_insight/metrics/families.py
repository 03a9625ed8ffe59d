"""
Families: the metrics of one operator, as plain numbers; only their exposition needs the library of Prometheus.

The thread of the event loop writes them, and other threads read them without locks: values that belong together are
read in one step.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from kopf._values.records import FrozenRecord

Labels = tuple[str, ...]
"""The values of the labels, in the order of their names."""

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The buckets of durations that are usually in milliseconds, in seconds."""

LONG = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""The buckets of durations that can be minutes, e.g. of handlers; in seconds."""


class Distribution(FrozenRecord, frozen=True):
    """The values of a histogram at some moment."""

    counts: Sequence[int]
    """The number of values in each bucket; the last bucket is for values above all bounds."""
    total: float
    """The sum of all values."""

    def __add__(self, other: Distribution) -> Distribution:
        counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        return Distribution(counts, self.total + other.total)


Kind = Literal["counter", "histogram", "sum", "max"]
"""The kind of a family. The last two are gauges: of several operators, the sum or the maximum is shown."""


class Snapshot(FrozenRecord, frozen=True):
    """A family at some moment."""

    name: str
    """The exposed name, without the suffixes of samples."""
    help: str
    kind: Kind
    labels: Labels
    """The names of the labels."""
    bounds: Sequence[float] = ()
    """For histograms: the upper bounds of the buckets, without the infinite one."""
    values: Mapping[Labels, float] = {}
    distributions: Mapping[Labels, Distribution] = {}
    """Instead of the values, for histograms."""


class Count:
    """A counter with all labels known."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0
        """The value. Hot code increases it in place."""


class Counter:
    """The number of times something has happened."""

    __slots__ = ("_counts", "help", "labels", "name")

    def __init__(self, name: str, help: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._counts: dict[Labels, Count] = {} if labels else {(): Count()}

    def add(self, *labels: str) -> None:
        """Count one more."""
        (self._counts.get(labels) or self.get(*labels)).value += 1

    def get(self, *labels: str) -> Count:
        """
        Get the count of the labels, for hot code. From now on, the count is shown even while it is 0: otherwise, the
        first time would not be noticed as an increase.
        """
        return self._counts.get(labels) or self._counts.setdefault(labels, Count())

    def read(self) -> Snapshot:
        """Get the values as of now."""
        values = {labels: count.value for labels, count in self._counts.copy().items()}
        return Snapshot(self.name, self.help, "counter", self.labels, values=values)


BATCH = 1000
"""How many values wait at most."""


class Cell:
    """
    A histogram with all labels known.

    The values wait, and are sorted into the buckets all at once: when the histogram is read, or when there are many.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_total", "values")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self.values: list[float] = []
        """
        The waiting values; always the same list. Hot code appends to it, and calls :meth:`read` if there are more than
        :data:`BATCH`.
        """
        self._lock = threading.Lock()  # several threads can read

    def observe(self, value: float) -> None:
        """Count the value."""
        values = self.values
        values.append(value)
        if len(values) >= BATCH:
            self.read()

    def read(self) -> Distribution:
        """Get the values as of now."""
        with self._lock:
            values = self.values.copy()
            del self.values[: len(values)]  # newer values are behind them
            self._total += math.fsum(values)
            values.sort()
            known = 0
            for index, bound in enumerate((*self._bounds, math.inf)):
                below = bisect_right(values, bound)
                self._counts[index] += below - known
                known = below
            return Distribution([*self._counts], self._total)


class Histogram:
    """The distribution of values."""

    __slots__ = ("_bounds", "_cells", "help", "labels", "name")

    def __init__(self, name: str, help: str, labels: Labels, bounds: Sequence[float] = SHORT) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._bounds = bounds
        self._cells: dict[Labels, Cell] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count the value."""
        (self._cells.get(labels) or self.get(*labels)).observe(value)

    def get(self, *labels: str) -> Cell:
        """Get the cell of the labels, for hot code."""
        return self._cells.setdefault(labels, Cell(self._bounds))

    def read(self) -> Snapshot:
        """Get the values as of now."""
        cells = {labels: cell.read() for labels, cell in self._cells.copy().items()}
        return Snapshot(self.name, self.help, "histogram", self.labels, self._bounds, distributions=cells)


Measured = Iterable[tuple[Labels, float]]
"""What is measured now. The values with the same labels are added up, or the maximum is shown, as the kind says."""


class Gauge:
    """A value that is measured when it is read."""

    __slots__ = ("_measure", "help", "kind", "labels", "name")

    def __init__(
        self,
        name: str,
        help: str,
        labels: Labels,
        measure: Callable[[], Measured],
        *,
        kind: Literal["sum", "max"] = "sum",
    ) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self.kind: Literal["sum", "max"] = kind
        self._measure = measure

    def read(self) -> Snapshot:
        """Get the values as of now."""
        values: dict[Labels, float] = {}
        _include(values, self._measure(), self.kind)
        return Snapshot(self.name, self.help, self.kind, self.labels, values=values)


Family = Counter | Histogram | Gauge


def _include(values: dict[Labels, float], others: Measured, kind: Kind) -> None:
    for labels, value in others:
        known = values.get(labels, value if kind == "max" else 0)
        values[labels] = max(known, value) if kind == "max" else known + value


def merge(one: Snapshot, two: Snapshot) -> Snapshot:
    """Merge the snapshots of two operators."""
    values, distributions = dict(one.values), dict(one.distributions)
    _include(values, two.values.items(), one.kind)
    for labels, distribution in two.distributions.items():
        distributions[labels] = distributions[labels] + distribution if labels in distributions else distribution
    return Snapshot(one.name, one.help, one.kind, one.labels, one.bounds, values, distributions)
