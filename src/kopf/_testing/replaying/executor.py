"""
The replaying executor: it calls the handlers, and lets them take the time that they took in the recording.
"""

from __future__ import annotations

from kopf._handlers.causes import Cause
from kopf._handlers.executor import NOTHING, HandlerExecutor, Surroundings
from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._recording.calls import describe_call, describe_outcome, is_replayable
from kopf._recording.randomness import Randomness
from kopf._testing.journal import Journal
from kopf._testing.replaying.book import Book
from kopf._testing.replaying.conductor import Conductor
from kopf._testing.replaying.recorded_run import make_journal_entry


class ReplayingExecutor(HandlerExecutor):
    """Does what that executor does, when it was recorded to be done."""

    def __init__(
        self, inner: HandlerExecutor, book: Book, conductor: Conductor, journal: Journal, randomness: Randomness
    ) -> None:
        self._inner = inner
        self._randomness = randomness
        self._book = book
        self._conductor = conductor
        self._journal = journal
        self.threads = inner.threads
        self.running = inner.running

    async def execute(
        self, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings = NOTHING
    ) -> Outcome:
        if not is_replayable(cause):
            return await self._inner.execute(handler, cause, attempt, around)
        fields = describe_call(handler, cause, attempt)
        call = self._book.take("call", fields, [])
        if call is not None:
            self._conductor.note_deed(call.begin.number)
            await self._conductor.wait(call.position)
        began = self._conductor.now
        outcome: Outcome | None = None
        try:
            with self._randomness.of_call(0 if call is None else call.begin.number):
                outcome = await self._inner.execute(handler, cause, attempt, around)
            if call is not None and call.end is not None:
                await self._conductor.wait(call.end_position)
        finally:
            done = describe_outcome(outcome)
            if not self._book.is_closed:
                self._journal.add(make_journal_entry(fields, began, done, self._conductor.now))
            if call is not None:
                self._book.note_outcome(call, done)
        return outcome
