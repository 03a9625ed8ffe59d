"""
Recording: the instruments of a recorded operator.

Its client works as usual, and notes the sent and received documents. Credentials, headers of the connection, and
retries with other credentials are on lower levels, so they never come here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pathlib
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

from kopf._client.auth.vault import Vault
from kopf._client.errors import APIError, APINetworkError, APISilenceError
from kopf._client.http.api import APIClient
from kopf._client.http.transport import Limits
from kopf._controller.instruments import Instruments
from kopf._controller.observer import Observer
from kopf._replay.calls import in_background, record_call
from kopf._replay.format import RecordingError
from kopf._replay.randomness import Randomness
from kopf._replay.recording_writer import Recorder, Writer
from kopf._settings.settings import OperatorSettings
from kopf._values import codec
from kopf._values.version import __version__

_KEPT_HEADERS = ("Retry-After",)
"""The only headers of responses that mean something to the operator."""


@contextlib.asynccontextmanager
async def recording(
    path: pathlib.Path, *, limit: int, options: Mapping[str, Any] | None = None, seed: int | None = None
) -> AsyncIterator[Instruments]:
    """
    Record the operator that is made with these instruments, in this event loop.

    :param path: the file of the recording.
    :param limit: the largest size of the file, in bytes.
    :param options: the options of the operator that are needed to replay it.
    :param seed: the seed of the module ``random`` in handlers. The file contains it, so that it can be replayed. If it
        is ``None``, the random numbers are the usual ones, and cannot be derived from the file.

    Raises :class:`RecordingError` if the file cannot be written.
    """
    try:
        writer = Writer(path, limit)
    except OSError as e:
        raise RecordingError(f"The recording {str(path)!r} cannot be written: {e.strerror or e}.") from e
    try:
        with recording_to(writer, options=options or {}, seed=seed) as instruments:
            yield instruments
    finally:
        await asyncio.to_thread(writer.close)  # other tasks go on


@contextlib.contextmanager
def recording_to(writer: Writer, *, options: Mapping[str, Any], seed: int | None = None) -> Iterator[Instruments]:
    """Make the instruments of a recorded operator; see :func:`recording`."""
    randomness = None if seed is None else Randomness(seed)
    head: dict[str, Any] = {"kopf": __version__, "python": platform.python_version(), "options": dict(options)}
    head |= {} if seed is None else {"seed": seed}
    recorder = Recorder(writer, head)
    with contextlib.nullcontext() if randomness is None else randomness.replacing_functions():
        yield Instruments(
            make_client=functools.partial(RecordingClient, recorder),
            interceptors=[functools.partial(record_call, recorder, randomness)],
            on_start=recorder.start,
            on_stop=recorder.stop,
        )


class RecordingClient(APIClient):
    """A client whose requests and streams are recorded."""

    def __init__(self, recorder: Recorder, vault: Vault, settings: OperatorSettings, observer: Observer) -> None:
        super().__init__(vault, settings, observer)
        self._recorder = recorder
        self.for_tools = APIClient(vault, settings, observer)

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        limits: Limits,
    ) -> bytes:
        recorder, path = self._recorder, target.partition("?")[0]
        fields = describe_request(method, target, headers)
        number = recorder.begin("req", fields, [] if body is None else [body], path)
        try:
            content = await super().send(method, target, body, headers, limits)
        except BaseException as e:
            recorder.note("res", number, describe_failure(e), [], path)
            raise
        recorder.note("res", number, {}, [content], path)
        await recorder.keep_up()
        return content

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        recorder = self._recorder
        fields = {"target": path, "params": dict(params or {}), "headers": dict(headers or {})}
        number = recorder.begin("open", fields, [], path)
        try:
            async with contextlib.aclosing(super().stream(path, params=params, headers=headers)) as stream:
                async for lines in stream:
                    recorder.note("lines", number, {}, lines, path)
                    await recorder.keep_up()
                    yield lines
        except BaseException as e:
            recorder.note("end", number, describe_failure(e), [], path)
            raise
        recorder.note("end", number, {}, [], path)


def describe_request(method: str, target: str, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """Describe the request."""
    fields: dict[str, Any] = {"method": method, "target": target, "headers": dict(headers or {})}
    if in_background.get():
        fields["background"] = True
    return fields


def describe_failure(error: BaseException) -> Mapping[str, Any]:
    """Describe the error of a request, so that a replay can raise the same error."""
    match error:
        case APIError():
            status = {
                "kind": "Status",
                "message": error.message,
                "reason": error.reason,
                "code": error.code,
                "details": error.details,
            }
            headers = {name: error.headers[name] for name in _KEPT_HEADERS if name in error.headers}
            return {"failure": "refused", "status": error.status, "headers": headers, "text": codec.dumps(status)}
        case APISilenceError():
            return {"failure": "silence", "text": str(error)}
        case APINetworkError():
            return {"failure": "network", "text": str(error)}
        case Exception():
            return {"failure": "error", "text": f"{type(error).__name__}: {error}"}
        case _:
            return {"failure": "cancelled"}
