"""
The replaying client: it gets its answers from the recording, at the recorded times, and never talks to anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from kopf._client.auth.credentials import LoginError
from kopf._client.auth.vault import Vault
from kopf._client.errors import APINetworkError, APISilenceError, make_error
from kopf._client.http.api import APIClient
from kopf._client.http.transport import Limits
from kopf._recording.recorder import Entry
from kopf._recording.recording_client import describe_request
from kopf._settings.settings import OperatorSettings
from kopf._testing.replaying.book import Book
from kopf._testing.replaying.conductor import Conductor
from kopf._testing.replaying.improvising import Improviser
from kopf._testing.replaying.recorded_run import RecordedStream
from kopf._values import codec

_MOST_IMPROVISED = 1000
"""After so many requests that were never recorded, there are no more answers: nothing else goes on, probably."""


class ReplayingClient(APIClient):
    """A client of a cluster that is not there."""

    def __init__(
        self, vault: Vault, settings: OperatorSettings, book: Book, conductor: Conductor, improviser: Improviser
    ) -> None:
        super().__init__(vault, settings)
        self._book = book
        self._conductor = conductor
        self._improviser = improviser
        self._improvised = 0

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        limits: Limits,
    ) -> bytes:
        fields = describe_request(method, target, headers)
        request = self._book.take("req", fields, [] if body is None else [body])
        if request is None:
            self._improvised += 1
            if self._improvised > _MOST_IMPROVISED or self._book.is_closed:
                await _wait_forever()
            await asyncio.sleep(0)
            return self._improviser.answer(method, target, body)
        self._conductor.note_deed(request.begin.number)
        await self._conductor.wait(request.position)
        if request.end is None or request.end.fields.get("failure") == "cancelled":
            await _wait_forever()
        else:
            await self._conductor.wait(request.end_position)
            if request.end.fields:
                raise _make_error(method, target.partition("?")[0], request.end)
            self._improviser.see_response(target, request.end)
            return request.end.documents[0]
        raise AssertionError("forever is over")

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        fields = {"target": path, "params": dict(params or {}), "headers": dict(headers or {})}
        stream = self._book.find_open_stream(path) or self._book.take("open", fields, [])
        if not isinstance(stream, RecordedStream):
            yield []
            await _wait_forever()
            return
        self._conductor.note_deed(stream.begin.number)
        await self._conductor.wait(stream.position)
        for position, entry in stream.lines:
            await self._conductor.wait(position)
            self._improviser.see_lines(path, entry.documents)
            yield entry.documents
        if stream.end is None or stream.end.fields.get("failure") == "cancelled":
            await _wait_forever()
        else:
            await self._conductor.wait(stream.end_position)
            if stream.end.fields:
                raise _make_error("GET", path, stream.end)


def _make_error(method: str, path: str, end: Entry) -> Exception:
    fields = end.fields
    match fields["failure"]:
        case "refused":
            content = {key: value for key, value in codec.decode(fields["text"]).items() if value is not None}
            return make_error(
                status=fields["status"], method=method, path=path, headers=fields["headers"], body=codec.encode(content)
            )
        case "silence":
            return APISilenceError(fields["text"])
        case "network":
            return APINetworkError(fields["text"])
        case _:
            return LoginError(fields["text"])


async def _wait_forever() -> None:
    """Until it is cancelled."""
    await asyncio.get_running_loop().create_future()
