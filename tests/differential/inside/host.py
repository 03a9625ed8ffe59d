"""Runs operators under the framework of its own environment: one process for each, with the imports done once."""

from __future__ import annotations

import importlib.util
import os
import sys

import yaml  # noqa: F401

import kopf.cli
from tests.differential.inside import witness
from tests.forking import Job, serve

# Our framework imports the most of itself when an operator starts; the original one has done so by now.
if importlib.util.find_spec("kopf._operator") is not None:
    import kopf._operator.running


def live(job: Job) -> None:
    """Be the operator, until it exits."""
    os.environ.update(job["env"])
    sys.path.insert(0, job["folder"])
    witness.begin(job["journal"])
    kopf.cli.main(job["args"], prog_name="kopf")


if __name__ == "__main__":
    serve(live)
