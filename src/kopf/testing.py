"""
Tools to test operators: :class:`KopfRunner` runs an operator in the background, :class:`LocalCluster` is its cluster;
:class:`Simulation` is both in virtual time, with crashes and faults on demand.

They are context managers, and need neither a real cluster nor a special test framework::

    from kopf.testing import KopfRunner, LocalCluster

    def test_operator(monkeypatch):
        with LocalCluster() as cluster:
            monkeypatch.setenv('KUBECONFIG', str(cluster.kubeconfig))
            with KopfRunner(['run', 'handlers.py', '--verbose']) as runner:
                ...
        assert runner.exit_code == 0
        assert 'Hello' in runner.output

:func:`run_handler` needs no operator: it calls a handler once with one state of an object::

    from kopf.testing import run_handler

    def test_handler():
        run = run_handler(create_fn, {'spec': {'replicas': 3}})
        assert run.outcome == 'succeeded'
        assert run.applied['status']['replicas'] == 3
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kopf._testing.handler_run import HandlerRun, LogLine, ReportedEvent
from kopf._testing.runner import KopfRunner
from kopf._testing.running_handlers import run_handler, run_handler_async
from kopf.cli.cluster import explain_incompleteness

if TYPE_CHECKING:
    from kopf._replay.comparison import Divergence
    from kopf._replay.format import RecordingError
    from kopf._replay.replay import Replay
    from kopf._testing.conversion_checks import check_conversions
    from kopf._testing.exploring.decorating import explore, walk_schema
    from kopf._testing.exploring.explorations import Exploration
    from kopf._testing.exploring.explored_runs import delete_created
    from kopf._testing.exploring.final_states import FinalState
    from kopf._testing.exploring.reports import Report, Trial
    from kopf._testing.exploring.schema_walks import SchemaWalk
    from kopf._testing.facade import SyncSimulation, simulate
    from kopf._testing.simulation import Simulation
    from kopf._virtual_time.patience import SimulationError
    from kopf.cli.replaying import replay
    from kopf_cluster import APIStatus, FaultRule, LocalCluster

__all__ = [
    "APIStatus",
    "Divergence",
    "Exploration",
    "FaultRule",
    "FinalState",
    "HandlerRun",
    "KopfRunner",
    "LocalCluster",
    "LogLine",
    "RecordingError",
    "Replay",
    "Report",
    "ReportedEvent",
    "SchemaWalk",
    "Simulation",
    "SimulationError",
    "SyncSimulation",
    "Trial",
    "check_conversions",
    "delete_created",
    "explore",
    "replay",
    "run_handler",
    "run_handler_async",
    "simulate",
    "walk_schema",
]

_OF_CLUSTER = {
    "APIStatus": "kopf_cluster",
    "Divergence": "kopf._replay.comparison",
    "Exploration": "kopf._testing.exploring.explorations",
    "FaultRule": "kopf_cluster",
    "FinalState": "kopf._testing.exploring.final_states",
    "LocalCluster": "kopf_cluster",
    "RecordingError": "kopf._replay.format",
    "Replay": "kopf._replay.replay",
    "Report": "kopf._testing.exploring.reports",
    "SchemaWalk": "kopf._testing.exploring.schema_walks",
    "Simulation": "kopf._testing.simulation",
    "SimulationError": "kopf._virtual_time.patience",
    "SyncSimulation": "kopf._testing.facade",
    "Trial": "kopf._testing.exploring.reports",
    "check_conversions": "kopf._testing.conversion_checks",
    "delete_created": "kopf._testing.exploring.explored_runs",
    "explore": "kopf._testing.exploring.decorating",
    "replay": "kopf.cli.replaying",
    "simulate": "kopf._testing.facade",
    "walk_schema": "kopf._testing.exploring.decorating",
}
"""The modules of names that need the local cluster, or that not all tests need."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name on its first use: the runner works without the local cluster and its libraries."""
        if name not in _OF_CLUSTER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(_OF_CLUSTER[name])
        except ImportError as e:
            raise ImportError(explain_incompleteness(e), name=e.name) from e
        globals()[name] = getattr(module, name)
        return globals()[name]
