"""
Instruments: what surrounds the client and the executor of an operator, so that it can be recorded or replayed.

There are none by default, and then nothing is in the way of requests and handlers. They are chosen by the context,
as the operator is made of them by whoever runs it: the command line, or a test.
"""

from __future__ import annotations

from contextvars import ContextVar

from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.clock import Clock
from kopf._controller.observer import Observer
from kopf._handlers.executor import HandlerExecutor
from kopf._settings.settings import OperatorSettings


class Instruments:
    """No instruments at all, and the base of those that are some."""

    has_webhooks = True
    """Whether the webhooks are served and published, if there are any."""

    def make_client(self, vault: Vault, settings: OperatorSettings, observer: Observer) -> APIClient:
        """Make the client of the operator."""
        return APIClient(vault, settings, observer)

    def instrument(self, executor: HandlerExecutor) -> HandlerExecutor:
        """Get the executor to be used instead of this one."""
        return executor

    def note_start(self, clock: Clock) -> None:
        """Take notice that the operator starts, and of its clock."""

    def note_stop(self) -> None:
        """Take notice that the operator begins to stop."""


instruments: ContextVar[Instruments] = ContextVar("instruments", default=Instruments())  # noqa: B039  # it is constant
"""What the operators of this context are made with."""
