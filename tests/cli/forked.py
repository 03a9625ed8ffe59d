"""The process that the commands are forked from: with all that they import, and in no environment of its own."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

from kopf._operator import planning
from kopf.cli import _COMMANDS, main
from kopf.cli.dev import command as dev
from tests.cli.processes import is_slow
from tests.forking import Job, serve
from tests.patience import PATIENCE

# What most of the commands import only when they run, is not in the commands.
LATE = (
    *("kopf._operator.running", "kopf._client.auth.kubeconfig", "kopf.on", "ctypes", "encodings.idna", "uvloop"),
    *("kopf_cluster.cluster", "kopf_cluster.server"),
)
for name in (*(place.partition(":")[0] for place, _ in _COMMANDS.values()), *LATE):
    if importlib.util.find_spec(name) is not None:  # some are optional
        importlib.import_module(name)


# Busy machines are slow.
dev.STOPPING_TIMEOUT = PATIENCE

# A plan waits for this when nothing is underway, and there are dozens of plans.
planning._SETTLING_TIME = 0.4


def live(job: Job) -> None:
    """Be the command, until it exits."""
    os.environ.clear()
    os.environ.update(job["env"])
    if is_slow(os.environ):
        sys.modules["uvloop"] = None  # type: ignore[assignment]  # the way to say that there is none
    dev.PUBLISHING_TIMEOUT = float(os.environ.get("KOPF_TEST_PUBLISHING_TIMEOUT", PATIENCE))
    main(job["args"], prog_name="kopf")


if __name__ == "__main__":
    sys.path.pop(0)  # the installed command has no current directory there
    serve(live)
