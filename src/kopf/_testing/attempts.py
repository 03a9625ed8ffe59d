"""
Attempts: how calls of handlers get into the journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable

from kopf._client.auth.credentials import Credentials
from kopf._controller.instruments import Execute
from kopf._handlers.attempt_observer import name_outcome, name_reason
from kopf._handlers.causes import ActivityCause, Cause, ResourceCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._replay.calls import locate
from kopf._values.reasons import Activity
from kopf._virtual_time.journal import HandlerCall, Journal, describe_place
from kopf._virtual_time.threaded_loop import thread_purpose

_CERTIFICATES = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
"""Certificates and keys: those of the cluster (``kube-root-ca.crt``) are truly random, whatever the seed is."""


class AttemptJournal:
    """
    Notes down all attempts when they end; see :data:`Interceptor`.

    :param credentials: what all logins bring, instead of their own: the connection in memory. They are called for what
        else they do: many configure the client libraries that the other handlers use.
    :param is_alive: whether the operator still lives: a dead one calls nothing, and what it does never happened.
    """

    def __init__(self, journal: Journal, credentials: Credentials, is_alive: Callable[[], bool]) -> None:
        self._credentials = credentials
        self._journal = journal
        self._is_alive = is_alive

    async def intercept(
        self, execute: Execute, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings
    ) -> Outcome:
        """Make the attempt."""
        if not self._is_alive():
            return Outcome(True)
        loop = asyncio.get_running_loop()
        began, digest = loop.time(), _make_digest(cause)
        outcome: Outcome | None = None
        token = thread_purpose.set(f"{handler.id!r} of {describe_place(**locate(cause))}".removesuffix(" of "))
        try:
            outcome = await execute(handler, cause, attempt, around)
            return Outcome(True, result=self._credentials) if _is_login(cause) else outcome
        finally:
            thread_purpose.reset(token)
            if self._is_alive() and not (_is_login(cause) and outcome is not None and outcome.exception is None):
                self._note(handler, cause, attempt, outcome, loop.time() - began, digest)

    def _note(
        self, handler: Handler, cause: Cause, attempt: Attempt, outcome: Outcome | None, duration: float, digest: str
    ) -> None:
        error = None if outcome is None else outcome.exception
        self._journal.add(
            HandlerCall(
                **locate(cause),
                time=self._journal.now,
                id=handler.id,
                reason=name_reason(handler, cause),
                retry=attempt.retry,
                duration=round(duration, 6),
                outcome=name_outcome(outcome),
                delay=None if outcome is None else outcome.delay,
                error="" if error is None else f"{type(error).__name__}: {error}".removesuffix(": "),
                digest=digest,
            )
        )


def _is_login(cause: Cause) -> bool:
    return isinstance(cause, ActivityCause) and cause.activity == Activity.AUTHENTICATION


def _make_digest(cause: Cause) -> str:
    data = cause.body.object.raw if isinstance(cause, ResourceCause) else b""
    if b"-----BEGIN" in data:
        data = _CERTIFICATES.sub(b"", data)
    return hashlib.blake2b(data, digest_size=4).hexdigest()
