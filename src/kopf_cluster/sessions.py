"""
What a request asks of others before it can be done: admission webhooks, conversion webhooks.

The API is synchronous, so that what it has read is still so when it writes. Whatever has to be asked outside does
not change that: the attempt to do the request ends with `Unresolved`, the question is asked while nothing is held,
and the request is attempted anew, now with the answer at hand. The last attempt, which needs nothing more, is the
one that counts, and it is atomic. If an object has changed meanwhile, then the question is another one, and it is
asked again: the same as the real server does about conflicts.

What would differ between attempts is fixed for the session: the generated names and UIDs, and the time.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from kopf_cluster import ages, statuses

T = TypeVar("T")

MAX_ATTEMPTS: Final = 10_000
"""How often a request is attempted before it is given up; every attempt but the last one asks something new."""

_current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("session", default=None)


class Unresolved(BaseException):
    """An attempt cannot go on without an answer. It is not an error, thus it must not be caught as one."""

    def __init__(self, question: Hashable, ask: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(question)
        self.question = question
        self.ask = ask


class Session:
    """What is known to the attempts of one request."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.moment = ages.now()
        self._seed = random.getrandbits(128)
        self._answers: dict[Hashable, Any] = {}
        self.random = random.Random(self._seed)

    def answer(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Give the answer (or raise the refusal) if it is known already; otherwise, end this attempt."""
        try:
            known = self._answers[question]
        except KeyError:
            raise Unresolved(question, ask) from None
        if isinstance(known, statuses.APIStatus):
            raise known
        answer: T = known
        return answer

    def attempt(self, attempt: Callable[[], T]) -> T:
        """Attempt once, with what is answered so far; raise `Unresolved` if that is not enough."""
        self.random = random.Random(self._seed)
        token = _current.set(self)
        try:
            return attempt()
        finally:
            _current.reset(token)

    async def run(self, attempt: Callable[[], T]) -> T:
        """Attempt until everything is answered."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return self.attempt(attempt)
            except Unresolved as unresolved:
                question, ask = unresolved.question, unresolved.ask
            if isinstance(refusal := self._answers.get(question), statuses.APIStatus):
                raise refusal
            try:
                self._answers[question] = await ask()
            except statuses.APIStatus as refusal:
                self._answers[question] = refusal
        raise statuses.internal("the request was attempted too many times")


def ask(question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
    """Give the answer if it is known already; otherwise, end this attempt, even if it is not one of a session yet."""
    session = current()
    if session is None:
        raise Unresolved(question, ask)
    return session.answer(question, ask)


def current() -> Session | None:
    """The session of the request that is being attempted; none for control loops and most of requests."""
    return _current.get()
