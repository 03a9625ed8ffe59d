from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import itertools
import logging
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kopf._settings.settings import ExecutionSettings, OperatorSettings, PeeringSettings, iter_delays
from kopf._settings.threads import HandlerThreads
from kopf._storage.diffbase import AnnotationsDiffBaseStorage
from kopf._storage.progress import SmartProgressStorage
from tests.patience import PATIENCE

DOCS = "\n".join(path.read_text() for path in (pathlib.Path(__file__).parent.parent.parent / "docs").glob("*.md"))

DEFAULTS: dict[str, dict[str, Any]] = {
    "process": {"ultimate_exiting_timeout": 600},
    "posting": {
        "enabled": True,
        "level": logging.INFO,
        "loggers": True,
        "worker_limit": None,
        "idle_timeout": 1.0,
        "reporting_component": "kopf",
        "reporting_instance": "dev",
        "event_name_prefix": "kopf-event-",
        "default_backoffs": (1, 1, 2, 3, 5, 8, 13, 21),
        "logging_backoffs": (1, 1, 2, 3, 5),
        "aggregation_window": 600,
        "similar_limit": 25,
        "object_burst": 50,
        "object_rate": 0.2,
        "total_burst": 1000,
        "total_rate": 20.0,
    },
    "peering": {
        "name": "default",
        "stealth": False,
        "priority": 0,
        "lifetime": 60,
        "mandatory": False,
        "standalone": False,
        "clusterwide": False,
    },
    "coordination": {
        "mode": None,
        "name": "kopf",
        "namespace": None,
        "identity": None,
        "lease_duration": 15,
        "renew_deadline": 10.0,
        "retry_period": 2.0,
        "drain_timeout": 30.0,
    },
    "watching": {
        "server_timeout": None,
        "client_timeout": None,
        "connect_timeout": None,
        "reconnect_backoff": 0.1,
        "inactivity_timeout": 70.0,
        "chunk_size": None,
        "initial_streaming": False,
        "label_selectors": {},
        "field_selectors": {},
        "push_selectors": True,
        "shard_selectors": {},
    },
    "queueing": {
        "worker_limit": None,
        "idle_timeout": 5.0,
        "batch_window": 0.1,
        "exit_timeout": 2.0,
        "error_delays": (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610),
    },
    "scanning": {"disabled": False},
    "admission": {"show_errors": False, "server": None, "managed": None},
    "execution": {"default_backoff": 60, "max_workers": None},
    "background": {
        "cancellation_polling": 60,
        "instant_exit_timeout": None,
        "instant_exit_zero_time_cycles": 10,
    },
    "networking": {
        "request_timeout": 300,
        "connect_timeout": None,
        "error_backoffs": (1, 1, 2, 3, 5, 8, 13, 21),
        "enforce_retry_after": False,
        "trust_env": False,
        "strict_x509": None,
        "client": "direct",
    },
    "persistence": {"finalizer": "kopf.zalando.org/KopfFinalizerMarker", "consistency_timeout": 5.0},
    "health": {"show_errors": False, "probe_lifetime": 5.0, "stream_timeout": 300, "loop_timeout": 10.0},
    "console": {"endpoint": None, "token": None},
    "metrics": {"endpoint": None, "enabled": False, "registry": None},
    "tracing": {"enabled": None, "provider": None},
}


def read(settings: OperatorSettings) -> dict[str, dict[str, object]]:
    """All settings but the objects, by their groups."""
    groups = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    objects = {"executor", "long_executor", "usage", "progress_storage", "diffbase_storage"}
    return {
        name: {field: getattr(group, field) for field in list_fields(group) if field not in objects}
        for name, group in groups.items()
    }


def list_fields(group: Any) -> list[str]:
    return [field.name.removeprefix("_") for field in dataclasses.fields(group)]


def test_defaults() -> None:
    assert read(OperatorSettings()) == DEFAULTS


def test_all_fields_can_be_changed() -> None:
    settings = OperatorSettings()
    for group, fields in DEFAULTS.items():
        for field in fields:
            setattr(getattr(settings, group), field, 123)
    assert read(settings) == {group: dict.fromkeys(fields, 123) for group, fields in DEFAULTS.items()}


# --- the docs ---


def is_documented(group: str, field: str) -> bool:
    return re.search(rf"`(settings\.)?({group}\.)?{field}`|settings\.{group}\.{field}\b", DOCS) is not None


def test_all_fields_are_documented() -> None:
    fields = [(group, field) for group, fields in DEFAULTS.items() for field in fields]
    assert [item for item in fields if not is_documented(*item)] == []


def test_documented_defaults() -> None:
    rows = re.findall(r"^\| `(?:settings\.)?(\w+)\.(\w+)` \| `?(None|True|False|[\d.]+)`? \|", DOCS, re.MULTILINE)
    assert len(rows) > 15
    wrong = [row for row in rows if row[0] in DEFAULTS and ast.literal_eval(row[2]) != DEFAULTS[row[0]][row[1]]]
    assert wrong == []


def test_default_objects() -> None:
    settings = OperatorSettings()
    assert isinstance(settings.persistence.progress_storage, SmartProgressStorage)
    assert isinstance(settings.persistence.diffbase_storage, AnnotationsDiffBaseStorage)
    assert isinstance(settings.execution.executor, HandlerThreads)


def test_nothing_is_shared_between_operators() -> None:
    one, two = OperatorSettings(), OperatorSettings()
    assert one.execution.executor is not two.execution.executor
    assert one.persistence.progress_storage is not two.persistence.progress_storage
    assert one.watching.label_selectors is not two.watching.label_selectors
    one.posting.enabled = False
    assert two.posting.enabled


def test_groups_can_be_passed_when_made() -> None:
    execution = ExecutionSettings(default_backoff=1)
    assert OperatorSettings(execution=execution).execution is execution


def test_batching_is_the_older_name_of_queueing() -> None:
    settings = OperatorSettings()
    with pytest.warns(DeprecationWarning, match=r"settings\.queueing"):
        settings.batching.error_delays = [10, 20, 30]
    assert settings.queueing.error_delays == [10, 20, 30]


def test_namespaced_peering_is_the_opposite_of_clusterwide_peering() -> None:
    assert PeeringSettings().namespaced is True
    assert PeeringSettings(clusterwide=True).namespaced is False
    peering = PeeringSettings(clusterwide=True)
    peering.namespaced = True
    assert peering.clusterwide is False


# --- the executor ---


def test_the_number_of_workers_applies_to_the_running_executor() -> None:
    settings = ExecutionSettings(default_backoff=1)
    settings.max_workers = 3
    barrier_size = 3
    flags = [concurrent.futures.Future[int]() for _ in range(barrier_size)]

    def run(index: int) -> int:
        flags[index].set_result(index)
        return sum(flag.result(timeout=PATIENCE) for flag in flags)  # only possible if all of them run at once

    try:
        assert list(settings.executor.map(run, range(barrier_size))) == [3, 3, 3]
    finally:
        settings.executor.shutdown()


@pytest.mark.parametrize("value", [0, -1])
def test_the_number_of_workers_is_positive(value: int) -> None:
    settings = ExecutionSettings()
    with pytest.raises(ValueError, match="must be 1 or more"):
        settings.max_workers = value
    assert settings.max_workers is None


def test_the_number_of_workers_is_remembered_for_any_executors() -> None:
    class Strange(concurrent.futures.Executor):
        pass

    settings = ExecutionSettings(executor=Strange())
    settings.max_workers = 5
    assert settings.max_workers == 5


# --- delays ---


class Infinite:
    def __iter__(self) -> Iterator[float]:
        return itertools.count(1.0)


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        (1, [1]),
        (0, [0]),
        (1.5, [1.5]),
        ([], []),
        ((), []),
        ([10, 20, 30], [10, 20, 30]),
        (Infinite(), [1, 2, 3, 4, 5]),
    ],
)
def test_delays_are_numbers_or_series_of_them(delays: Any, expected: list[float]) -> None:
    for _ in range(2):  # they are re-iterable
        assert list(itertools.islice(iter_delays(delays), 5)) == expected
