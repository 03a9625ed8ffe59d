"""
The process of the operator under ``kopf dev``: it shows all errors, its time can leap, and its console can edit the
local cluster.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading

from kopf._handlers.time_source import time_source
from kopf._insight.console.console import editing
from kopf._settings.settings import OperatorSettings
from kopf.cli.dev.cluster_editing import ClusterEditing
from kopf.cli.dev.leaping import LeapingLoop, LeapingTime

KUBECONFIG_VARIABLE = "KOPF_DEV_KUBECONFIG"
"""The environment variable with the kubeconfig of the local cluster, for the editing in the page."""
OFFSET_VARIABLE = "KOPF_DEV_CLOCK_OFFSET"
"""The environment variable that tells a reloaded operator how far the time has leapt, in seconds."""

STOP_SIGNAL = signal.SIGTERM if sys.platform == "win32" else signal.SIGUSR1
"""The signal that stops an operator in development, even after Ctrl+C of the terminal has come to it."""

_LOOP_TIMEOUT = 0.5
"""After how long a blocked event loop is reported in development, in seconds."""


def show_everything(settings: OperatorSettings) -> None:
    """Show all errors, and let the console edit the local cluster."""
    if kubeconfig := os.environ.get(KUBECONFIG_VARIABLE):
        editing.set(ClusterEditing(kubeconfig))
    settings.admission.show_errors = settings.health.show_errors = True
    settings.health.loop_timeout = _LOOP_TIMEOUT


def make_stop_flag() -> threading.Event:
    """Make a stop flag for a signal that can be repeated, unlike the stop flag of Ctrl+C."""
    stop_flag = threading.Event()
    signal.signal(STOP_SIGNAL, lambda signum, frame: stop_flag.set())
    return stop_flag


def make_leaping_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop whose time the page can move; it continues the time from before a reload."""
    loop = LeapingLoop()
    time_source.set(LeapingTime(loop))
    if offset := float(os.environ.get(OFFSET_VARIABLE, "0")):
        loop.leap_with_process(offset)
    return loop
