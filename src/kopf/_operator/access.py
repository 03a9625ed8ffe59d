"""Access to the cluster for a single command, with no operator around it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from kopf._client.auth.vault import Vault
from kopf._client.errors import APIForbiddenError
from kopf._client.http.api import APIClient
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.activities import Activities
from kopf._operator.login import Authenticator
from kopf._operator.tasks import cancel
from kopf._settings.settings import OperatorSettings
from kopf._values.operator_error import OperatorError
from kopf._values.permissions import format_rule
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource


class Access(FrozenRecord, frozen=True):
    """The access to the cluster, like that of an operator with the same handlers and settings."""

    registry: OperatorRegistry
    settings: OperatorSettings
    vault: Vault

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[APIClient]:
        """Log in for the time of the block. Raises :class:`LoginError` if the login fails."""
        executor = HandlerExecutor(self.settings.execution)
        try:
            authenticator = Authenticator(self.vault, self.registry, Activities(self.settings, executor))
            await authenticator.login(verbose=False)
            authenticating = asyncio.create_task(authenticator.run(), name="authenticator")
            try:
                yield APIClient(self.vault, self.settings)
            finally:
                await cancel([authenticating])
        finally:
            await self.vault.close()
            executor.threads.release()


@contextlib.contextmanager
def naming_rule(resource: Resource, verb: str, *, subresource: str | None = None) -> Iterator[None]:
    """Name the rule that is missing if the server forbids the request. Raises :class:`OperatorError`."""
    try:
        yield
    except APIForbiddenError as e:
        rule = format_rule(resource, [verb], subresource=subresource)
        raise OperatorError(f"{e}. You need this rule: {rule}") from e
