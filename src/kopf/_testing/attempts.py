"""
Attempts: how calls of handlers get into the journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from typing import TypedDict

from kopf._client.auth.credentials import Credentials
from kopf._facts.bus import Bus
from kopf._handlers.causes import ActivityCause, Cause, ChangingCause, ResourceCause, WatchingCause, WebhookCause
from kopf._handlers.executor import NOTHING, HandlerExecutor, Surroundings
from kopf._handlers.handlers import Handler, IndexingHandler, TimerHandler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._settings.settings import ExecutionSettings
from kopf._testing.journal import HandlerCall, Journal
from kopf._values.reasons import Activity

_ALIVE: Callable[[], bool] = lambda: True  # noqa: E731


_CERTIFICATES = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
"""Certificates and keys: those of the cluster (``kube-root-ca.crt``) are truly random, whatever the seed is."""


class Place(TypedDict):
    """Where an entry of the journal belongs to."""

    resource: str
    namespace: str
    name: str


class JournalingExecutor(HandlerExecutor):
    """
    Notes down all attempts when they end.

    :param credentials: what all logins bring, instead of their own: the connection in memory. They are called for what
        else they do: many configure the client libraries that the other handlers use.
    :param is_alive: whether the operator still lives: a dead one calls nothing, and what it does never happened.
    """

    def __init__(
        self, settings: ExecutionSettings, bus: Bus, journal: Journal, credentials: Credentials,
        is_alive: Callable[[], bool] = _ALIVE,
    ) -> None:
        super().__init__(settings, bus)
        self._credentials = credentials
        self._journal = journal
        self._is_alive = is_alive

    async def execute(
        self, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings = NOTHING
    ) -> Outcome:
        if not self._is_alive():
            return Outcome(True)
        loop = asyncio.get_running_loop()
        began, digest = loop.time(), _make_digest(cause)
        outcome: Outcome | None = None
        try:
            outcome = await super().execute(handler, cause, attempt, around)
            return Outcome(True, result=self._credentials) if _is_login(cause) else outcome
        finally:
            if self._is_alive() and not (_is_login(cause) and outcome is not None and outcome.exception is None):
                self._note(handler, cause, attempt, outcome, loop.time() - began, digest)

    def _note(
        self, handler: Handler, cause: Cause, attempt: Attempt, outcome: Outcome | None, duration: float, digest: str
    ) -> None:
        error = None if outcome is None else outcome.exception
        self._journal.add(
            HandlerCall(
                **_locate(cause),
                time=self._journal.now,
                id=handler.id,
                reason=_name_reason(handler, cause),
                retry=attempt.retry,
                duration=round(duration, 6),
                outcome=_name_outcome(outcome),
                delay=None if outcome is None else outcome.delay,
                error="" if error is None else f"{type(error).__name__}: {error}".removesuffix(": "),
                digest=digest,
            )
        )


def _is_login(cause: Cause) -> bool:
    return isinstance(cause, ActivityCause) and cause.activity == Activity.AUTHENTICATION


def _locate(cause: Cause) -> Place:
    """Tell which object it is about, if any."""
    if not isinstance(cause, ResourceCause):
        return {"resource": "", "namespace": "", "name": ""}
    resource, head = cause.resource, cause.body.object.head
    full = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return {"resource": full, "namespace": head.namespace or "", "name": head.name or ""}


def _name_reason(handler: Handler, cause: Cause) -> str:
    if isinstance(cause, ChangingCause):
        return str(cause.reason.value)
    if isinstance(cause, ActivityCause):
        return str(cause.activity.value)
    if isinstance(cause, WatchingCause):
        return "event"
    if isinstance(cause, WebhookCause):
        return "webhook"
    if isinstance(handler, IndexingHandler):
        return "index"
    return "timer" if isinstance(handler, TimerHandler) else "daemon"


def _name_outcome(outcome: Outcome | None) -> str:
    if outcome is None:
        return "cancelled"
    if not outcome.final:
        return "retried"
    return "succeeded" if outcome.exception is None else "failed"


def _make_digest(cause: Cause) -> str:
    data = cause.body.object.raw if isinstance(cause, ResourceCause) else b""
    if b"-----BEGIN" in data:
        data = _CERTIFICATES.sub(b"", data)
    return hashlib.blake2b(data, digest_size=4).hexdigest()
