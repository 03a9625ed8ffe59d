"""
Sessions of requests that wait for others: for admission webhooks, conversion webhooks.

The API is synchronous, so that its reads are still true when it writes. Calls of webhooks do not change that: an
attempt that needs an answer ends with `Unresolved`, the session calls the webhook while nothing is locked, and attempts
the request again with the answer. Only the last attempt, which needs nothing more, has an effect, and it is atomic. If
an object has changed meanwhile, the question is a new one, and the webhook is called again, as a real server does after
conflicts.

Everything that would differ between attempts is fixed for the session: the generated names and UIDs, and the time.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from kopf_cluster import ages, statuses

T = TypeVar("T")

MAX_ATTEMPTS: Final = 10_000
"""The maximal number of attempts of a request; each one but the last asks a new question."""

_current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("session", default=None)


class Unresolved(BaseException):
    """An attempt needs an answer to continue. This is no error, and must not be caught as one."""

    def __init__(self, question: Hashable, ask: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(question)
        self.question = question
        self.ask = ask


class Session:
    """The common state of the attempts of one request."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.moment = ages.now()
        self._seed = random.getrandbits(128)
        self._answers: dict[Hashable, Any] = {}
        self.random = random.Random(self._seed)

    def answer(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the known answer, or raise the known refusal; otherwise, end this attempt with `Unresolved`."""
        try:
            known = self._answers[question]
        except KeyError:
            raise Unresolved(question, ask) from None
        if isinstance(known, statuses.APIStatus):
            raise known
        answer: T = known
        return answer

    def attempt(self, attempt: Callable[[], T]) -> T:
        """Attempt once with the known answers; raise `Unresolved` if one is missing."""
        self.random = random.Random(self._seed)
        token = _current.set(self)
        try:
            return attempt()
        finally:
            _current.reset(token)

    async def run(self, attempt: Callable[[], T]) -> T:
        """Attempt until all questions are answered."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return self.attempt(attempt)
            except Unresolved as unresolved:
                question, ask = unresolved.question, unresolved.ask
            try:
                self._answers[question] = await ask()
            except statuses.APIStatus as refusal:
                self._answers[question] = refusal
        raise statuses.internal("the request was attempted too many times")


def ask(question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
    """Return the known answer; otherwise, end this attempt with `Unresolved`, even outside of a session."""
    session = current()
    if session is None:
        raise Unresolved(question, ask)
    return session.answer(question, ask)


def current() -> Session | None:
    """Return the session of the current attempt; none for control loops and most requests."""
    return _current.get()
