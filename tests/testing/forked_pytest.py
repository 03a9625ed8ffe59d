"""The process that runs of ``pytest`` are forked from: with the test kit, and with no environment of its own."""

from __future__ import annotations

import os
import sys

import pytest

import kopf.testing
from kopf.testing import LocalCluster, Simulation, SyncSimulation
from tests.forking import Job, serve

__all__ = ["LocalCluster", "Simulation", "SyncSimulation", "kopf"]


def live(job: Job) -> None:
    """Be ``python -m pytest``, until it exits."""
    os.environ.clear()
    os.environ.update(job["env"])
    sys.path.insert(0, job["folder"])
    sys.exit(pytest.main(job["args"]))


if __name__ == "__main__":
    sys.path.pop(0)  # pytest is started in other folders
    serve(live)
