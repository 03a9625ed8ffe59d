"""
The process of the operator under ``kopf dev``: all that is special in it.

It shows all that can be shown, its time can leap, and its console can edit the local cluster.
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
"""The environment variable by which the operator is told of the local cluster, to be edited in the page."""
OFFSET_VARIABLE = "KOPF_DEV_CLOCK_OFFSET"
"""The environment variable by which a reloaded operator is told how far the time has leapt, in seconds."""

STOP_SIGNAL = signal.SIGTERM if sys.platform == "win32" else signal.SIGUSR1
"""What stops an operator in development: also if Ctrl+C of the terminal has come to it before that."""

_LOOP_TIMEOUT = 0.5
"""How long the event loop may be blocked in development, in seconds, until it is said who blocks it."""


def show_everything(settings: OperatorSettings) -> None:
    """Let all be shown that can be, and the console edit the local cluster."""
    if kubeconfig := os.environ.get(KUBECONFIG_VARIABLE):
        editing.set(ClusterEditing(kubeconfig))
    settings.admission.show_errors = settings.health.show_errors = True
    settings.health.loop_timeout = _LOOP_TIMEOUT


def make_stop_flag() -> threading.Event:
    """Stop by a signal that can be repeated, as those of Ctrl+C cannot be."""
    stop_flag = threading.Event()
    signal.signal(STOP_SIGNAL, lambda signum, frame: stop_flag.set())
    return stop_flag


def make_leaping_loop() -> asyncio.AbstractEventLoop:
    """The page of the console can move the time; it goes on from where it was before a reload."""
    loop = LeapingLoop()
    time_source.set(LeapingTime(loop))
    if offset := float(os.environ.get(OFFSET_VARIABLE, "0")):
        loop.leap_with_process(offset)
    return loop
