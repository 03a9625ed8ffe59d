"""
Instruments: the replaced parts of an operator that is recorded, replayed, or simulated.

By default, there are none, and nothing stands between the operator and its requests and handlers.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Awaitable, Callable, Sequence

from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.observer import Observer
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.causes import Cause
from kopf._handlers.executor import NOTHING, HandlerExecutor, Surroundings
from kopf._handlers.handlers import Handler
from kopf._settings.settings import ExecutionSettings, OperatorSettings
from kopf._values.records import FrozenRecord

Execute = Callable[[Handler, Cause, Attempt, Surroundings], Awaitable[Outcome]]
"""Makes an attempt; see :meth:`HandlerExecutor.execute`."""
Interceptor = Callable[[Execute, Handler, Cause, Attempt, Surroundings], Awaitable[Outcome]]
"""Makes an attempt by the function that it gets, with its own actions before and after."""


class Instruments(FrozenRecord, frozen=True, kw_only=True):
    """The replaced parts of an operator."""

    make_client: Callable[[Vault, OperatorSettings, Observer], APIClient] = APIClient
    interceptors: Sequence[Interceptor] = ()
    """The wrappers of every attempt; the last one is the outermost."""
    has_webhooks: bool = True
    """Whether to serve and publish the webhooks, if there are any."""
    has_replicas: bool = True
    """Whether to coordinate with other replicas, if the settings say so."""
    on_start: Callable[[datetime.datetime], object] = lambda now: None
    """Called when the operator starts, with the time by its clock."""
    on_stop: Callable[[], object] = lambda: None
    """Called when the operator begins to stop."""

    def make_executor(self, settings: ExecutionSettings, observer: Observer) -> HandlerExecutor:
        """Make the executor of all attempts of the operator."""
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
        self.check_fence(handler)  # an attempt that the fence refuses has never begun
        return await self._execute(handler, cause, attempt, around)
