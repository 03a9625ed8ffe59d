"""
Recording: the instruments of an operator that is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import platform
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.clock import Clock
from kopf._controller.instruments import Instruments, instruments
from kopf._controller.observer import Observer
from kopf._handlers.executor import HandlerExecutor
from kopf._recording.calls import RecordingExecutor
from kopf._recording.format import RecordingError
from kopf._recording.randomness import Randomness
from kopf._recording.recorder import Recorder
from kopf._recording.recording_client import RecordingClient
from kopf._recording.writer import Writer
from kopf._settings.settings import OperatorSettings
from kopf._values.version import __version__


class RecordingInstruments(Instruments):
    """What notes down the requests and the calls."""

    def __init__(self, recorder: Recorder, randomness: Randomness | None) -> None:
        self._recorder = recorder
        self._randomness = randomness

    def make_client(self, vault: Vault, settings: OperatorSettings, observer: Observer) -> APIClient:
        return RecordingClient(vault, settings, observer, self._recorder)

    def instrument(self, executor: HandlerExecutor) -> HandlerExecutor:
        return RecordingExecutor(executor, self._recorder, self._randomness)

    def note_start(self, clock: Clock) -> None:
        self._recorder.start(clock.now())

    def note_stop(self) -> None:
        self._recorder.begin("stop", {}, [])


@contextlib.asynccontextmanager
async def recording(
    path: pathlib.Path, *, limit: int, options: Mapping[str, Any] | None = None, seed: int | None = None
) -> AsyncIterator[None]:
    """
    Record the operator that is made in this context, in this event loop.

    :param options: what is to be the same for the operator when it is replayed.
    :param seed: of what handlers get by the module ``random``, to be replayed: it is in the file. If there is none,
        nothing is done about such numbers, and nobody can derive them.

    Raises :class:`RecordingError` if the file cannot be written.
    """
    writer = _open(path, limit)
    try:
        with recording_to(writer, options=options or {}, seed=seed):
            yield
    finally:
        await asyncio.to_thread(writer.close)  # others in the loop go on


def _open(path: pathlib.Path, limit: int) -> Writer:
    try:
        return Writer(path, limit)
    except OSError as e:
        raise RecordingError(f"The recording {str(path)!r} cannot be written: {e.strerror or e}.") from e


@contextlib.contextmanager
def recording_to(writer: Writer, *, options: Mapping[str, Any], seed: int | None = None) -> Iterator[None]:
    """Let the operators that are made in this context be recorded; there should be one."""
    randomness = None if seed is None else Randomness(seed)
    head: dict[str, Any] = {"kopf": __version__, "python": platform.python_version(), "options": dict(options)}
    head |= {} if seed is None else {"seed": seed}
    token = instruments.set(RecordingInstruments(Recorder(writer, head), randomness))
    try:
        with contextlib.nullcontext() if randomness is None else randomness.ruling():
            yield
    finally:
        instruments.reset(token)
