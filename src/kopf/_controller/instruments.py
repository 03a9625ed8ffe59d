"""
Instruments: what an operator is made with by those who record it, replay it, or simulate it.

There are none by default, and then nothing is in the way of requests and handlers.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Awaitable, Callable, Sequence

from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.observer import Observer
from kopf._handlers.causes import Cause
from kopf._handlers.executor import NOTHING, HandlerExecutor, Surroundings
from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._settings.settings import ExecutionSettings, OperatorSettings
from kopf._values.records import FrozenRecord

Execute = Callable[[Handler, Cause, Attempt, Surroundings], Awaitable[Outcome]]
"""Makes an attempt; see :meth:`HandlerExecutor.execute`."""
Interceptor = Callable[[Execute, Handler, Cause, Attempt, Surroundings], Awaitable[Outcome]]
"""Makes an attempt by what it is given for that; before and after that, it does what it is for."""


class Instruments(FrozenRecord, frozen=True, kw_only=True):
    """What surrounds the client and the executor of an operator."""

    make_client: Callable[[Vault, OperatorSettings, Observer], APIClient] = APIClient
    interceptors: Sequence[Interceptor] = ()
    """What is around every attempt; the last one is the outermost."""
    has_webhooks: bool = True
    """Whether the webhooks are served and published, if there are any."""
    has_replicas: bool = True
    """Whether it shares its objects with its other replicas, if the settings say so; otherwise, it is alone."""
    on_start: Callable[[datetime.datetime], object] = lambda now: None
    """It is told when the operator starts, and of the time by its clock."""
    on_stop: Callable[[], object] = lambda: None
    """It is told when the operator begins to stop."""

    def make_executor(self, settings: ExecutionSettings, observer: Observer) -> HandlerExecutor:
        """Make what makes all attempts of the operator."""
        if not self.interceptors:
            return HandlerExecutor(settings, observer)
        return InterceptedExecutor(settings, observer, self.interceptors)


NO_INSTRUMENTS = Instruments()


class InterceptedExecutor(HandlerExecutor):
    """Makes the attempts through the interceptors."""

    def __init__(self, settings: ExecutionSettings, observer: Observer, interceptors: Sequence[Interceptor]) -> None:
        super().__init__(settings, observer)
        self._execute: Execute = super().execute
        for interceptor in interceptors:
            self._execute = functools.partial(interceptor, self._execute)

    async def execute(
        self, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings = NOTHING
    ) -> Outcome:
        return await self._execute(handler, cause, attempt, around)
