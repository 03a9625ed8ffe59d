"""
The instruments of a replay: responses come from the recording, and handlers are called, at the recorded times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import NoReturn

from kopf._client.auth.credentials import LoginError
from kopf._client.auth.vault import Vault
from kopf._client.errors import APINetworkError, APISilenceError, make_error
from kopf._client.http.api import APIClient
from kopf._client.http.transport import Limits
from kopf._controller.instruments import Execute, Instruments
from kopf._controller.observer import Observer
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.causes import Cause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import Handler
from kopf._replay.calls import describe_call, describe_outcome, is_replayable
from kopf._replay.comparison import Comparison
from kopf._replay.fallback_answers import FallbackAnswers
from kopf._replay.format import RecordedEntry
from kopf._replay.randomness import Randomness, ShortestDelays
from kopf._replay.recorded_run import RecordedAction, RecordedRun, make_journal_entry
from kopf._replay.recording import describe_request
from kopf._replay.schedule import Schedule
from kopf._settings.settings import OperatorSettings
from kopf._values import codec
from kopf._virtual_time.journal import Journal

_MOST_UNRECORDED = 1000
"""The limit of requests that were never recorded. More are not answered: probably, nothing else goes on."""


class Replayer:
    """Makes an operator repeat its recording, and compares them."""

    def __init__(self, run: RecordedRun, schedule: Schedule) -> None:
        self.run = run
        self.schedule = schedule
        self.comparison = Comparison(run, schedule)
        self.fallback = FallbackAnswers(run)
        self.journal = Journal(lambda: schedule.now)
        """The calls of handlers."""
        self.randomness = Randomness(run.seed, ShortestDelays(run.seed))

    def make_instruments(self) -> Instruments:
        """Make the instruments of the operator."""
        return Instruments(
            make_client=self._make_client, interceptors=[self._call], has_webhooks=False, has_replicas=False
        )

    def _make_client(self, vault: Vault, settings: OperatorSettings, observer: Observer) -> APIClient:
        return ReplayingClient(vault, settings, self)

    async def _call(
        self, execute: Execute, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings
    ) -> Outcome:
        """Call the handler, and make it take the recorded time."""
        if not is_replayable(cause):
            return await execute(handler, cause, attempt, around)
        fields = describe_call(handler, cause, attempt)
        call = self.comparison.match("call", fields, [])
        if call is not None:
            await self.begin(call)
        began = self.schedule.now
        outcome: Outcome | None = None
        try:
            with self.randomness.of_call(0 if call is None else call.begin.number):
                outcome = await execute(handler, cause, attempt, around)
            if call is not None and call.end is not None:
                await self.schedule.wait(call.end_position)
        finally:
            done = describe_outcome(outcome)
            if not self.comparison.is_closed:
                self.journal.add(make_journal_entry(fields, began, done, self.schedule.now))
            if call is not None:
                self.comparison.note_outcome(call, done)
        return outcome

    async def begin(self, action: RecordedAction) -> None:
        """Wait for the recorded moment of the action."""
        self.schedule.note_action(action.begin.number)
        await self.schedule.wait(action.position)

    async def end(self, action: RecordedAction, method: str, path: str) -> RecordedEntry:
        """Wait for the recorded end of the request or the stream; raise its error, if there was any."""
        if action.end is None or action.end.fields.get("failure") == "cancelled":
            await _wait_forever()
        await self.schedule.wait(action.end_position)
        if action.end.fields:
            raise _make_error(method, path, action.end)
        return action.end


class ReplayingClient(APIClient):
    """A client of a cluster that does not exist."""

    def __init__(self, vault: Vault, settings: OperatorSettings, replayer: Replayer) -> None:
        super().__init__(vault, settings)
        self._replayer = replayer
        self._unrecorded = 0

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        limits: Limits,
    ) -> bytes:
        replayer, fields = self._replayer, describe_request(method, target, headers)
        request = replayer.comparison.match("req", fields, [] if body is None else [body])
        if request is None:
            self._unrecorded += 1
            if self._unrecorded > _MOST_UNRECORDED or replayer.comparison.is_closed:
                await _wait_forever()
            await asyncio.sleep(0)
            return replayer.fallback.answer(method, target, body)
        await replayer.begin(request)
        response = await replayer.end(request, method, target.partition("?")[0])
        replayer.fallback.see_response(target, response)
        return response.documents[0]

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        replayer = self._replayer
        fields = {"target": path, "params": dict(params or {}), "headers": dict(headers or {})}
        stream = replayer.comparison.find_open_stream(path) or replayer.comparison.match("open", fields, [])
        if stream is None:
            yield []
            await _wait_forever()
        await replayer.begin(stream)
        for position, entry in stream.lines:
            await replayer.schedule.wait(position)
            replayer.fallback.see_lines(path, entry.documents)
            yield entry.documents
        if (following := replayer.run.find_next(stream)) is not None:
            await replayer.schedule.wait(stream.end_position)
            if following.begin.kind == "req":  # the replayed operator is no replica, so it must be made to list anew
                raise make_error(status=410, method="GET", path=path, headers={}, body=b"")
            return
        await replayer.end(stream, "GET", path)


def _make_error(method: str, path: str, end: RecordedEntry) -> Exception:
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


async def _wait_forever() -> NoReturn:
    """Wait until the task is cancelled."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("forever is over")
