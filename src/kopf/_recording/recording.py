"""
Recording: the instruments of an operator that is recorded.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
from collections.abc import Iterator, Mapping
from typing import Any

from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.clock import Clock
from kopf._facts.bus import Bus
from kopf._handlers.executor import HandlerExecutor
from kopf._operator.instruments import Instruments, instruments
from kopf._recording.calls import RecordingExecutor
from kopf._recording.randomness import Randomness
from kopf._recording.recorder import Recorder
from kopf._recording.recording_client import RecordingClient
from kopf._recording.writer import Writer
from kopf._settings.settings import OperatorSettings
from kopf._values.version import __version__

DEFAULT_LIMIT = 64 * 2**20
"""The largest size of a recording, in bytes."""


class RecordingInstruments(Instruments):
    """What notes down the requests and the calls."""

    def __init__(self, recorder: Recorder, randomness: Randomness) -> None:
        self._recorder = recorder
        self._randomness = randomness

    def make_client(self, vault: Vault, settings: OperatorSettings, bus: Bus) -> APIClient:
        return RecordingClient(vault, settings, bus, self._recorder)

    def instrument(self, executor: HandlerExecutor) -> HandlerExecutor:
        return RecordingExecutor(executor, self._recorder, self._randomness)

    def note_start(self, clock: Clock) -> None:
        self._recorder.start(clock.now())

    def note_stop(self) -> None:
        self._recorder.begin("stop", {}, [])


@contextlib.contextmanager
def recording(
    path: pathlib.Path, *, limit: int = DEFAULT_LIMIT, options: Mapping[str, Any] | None = None, seed: int | None = None
) -> Iterator[None]:
    """
    Record the operators that are made in this context; there should be one.

    :param options: what is to be the same for the operator when it is replayed.
    :param seed: of the random numbers; a random one by default.

    Raises :class:`OSError` if the file cannot be written.
    """
    writer = Writer(path, limit)
    seed = int.from_bytes(os.urandom(6)) if seed is None else seed
    randomness = Randomness(seed, is_jittery=True)
    head = {"kopf": __version__, "python": platform.python_version(), "seed": seed, "options": dict(options or {})}
    token = instruments.set(RecordingInstruments(Recorder(writer, head), randomness))
    try:
        with randomness.ruling():
            yield
    finally:
        instruments.reset(token)
        writer.close()
