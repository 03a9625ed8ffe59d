"""
The summary, logged once when the operator is ready: its handlers, resources, namespaces, user, and peers.

It must not cost or break anything: one request without retries asks for the name of the user; if it fails, the summary
leaves the name out. Source: Kubernetes documentation, "SelfSubjectReview".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import Discovery
from kopf._controller.runtime import Runtime
from kopf._coordination.peering import Peering
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.namespaces import Namespaces
from kopf._values import codec
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._operator.replica_status import ReplicaStatus

logger = logging.getLogger(__name__)

_MAX_NAMES = 5
_REVIEW_URL = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
_JOINING_TIMEOUT = 5.0
"""How long to wait until the role of this replica is known, in seconds."""
_REVIEW_TIMEOUT = 2.0
"""How long the request for the name of the user may take, in seconds."""


def is_heard() -> bool:
    """Tell if the log level shows the summary."""
    return logger.isEnabledFor(logging.INFO)


class ReadinessSummary:
    """Logs the summary when the resources are known, everything is indexed, and the peering is decided."""

    def __init__(
        self,
        runtime: Runtime,
        registry: OperatorRegistry,
        namespaces: Namespaces,
        peering: Peering,
        replica: ReplicaStatus | None,
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._namespaces = namespaces
        self._peering = peering
        self._resources: asyncio.Future[Collection[Resource]] = asyncio.get_running_loop().create_future()
        self._replica = replica

    def accept_resources(self, discovery: Discovery, resources: Collection[Resource]) -> None:
        """Accept the watched resources."""
        if not self._resources.done():
            self._resources.set_result([*resources])

    async def run(self) -> None:
        """Log the summary once; then wait forever, like all tasks of the operator."""
        resources = await self._resources
        await self._peering.settle()
        if not self._runtime.index_readiness.is_open:
            is_indexed = asyncio.Event()
            self._runtime.index_readiness.call_when_open(is_indexed.set)
            await is_indexed.wait()
        user = await _find_user(self._runtime.api.for_tools)
        count = len(self._registry.resources) + len(self._registry.webhooks) + len(self._registry.conversions)
        parts = [f"{count} handler{'s' * (count != 1)}", _describe_place(resources, self._namespaces.names)]
        parts += [] if user is None else [f"as {user}"]
        logger.info("ready: %s", ", ".join([*parts, await self._describe_coordination()]))
        await asyncio.Event().wait()

    async def _describe_coordination(self) -> str:
        if self._replica is None:
            return self._peering.describe()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_JOINING_TIMEOUT):
                await self._replica.is_known.wait()
        state, settings = self._replica.get(), self._runtime.settings
        text = f"joining the replicas of {settings.coordination.name!r}" if state is None else state.describe()
        return text if settings.peering.standalone else f"{text}, {self._peering.describe()}"


def _describe_place(resources: Collection[Resource], scopes: Collection[str | None]) -> str:
    if not resources:
        return "watching nothing yet"
    names = _join([f"{resource.name}/{resource.version}" for resource in sorted(resources, key=str)])
    if None not in scopes:
        return f"watching {names} in {_join(sorted(filter(None, scopes))) if scopes else 'no namespaces yet'}"
    is_global = not any(resource.namespaced for resource in resources)
    return f"watching {names} {'in the whole cluster' if is_global else 'in all namespaces'}"


def _join(names: list[str]) -> str:
    shown = names if len(names) <= _MAX_NAMES else [*names[:_MAX_NAMES], f"{len(names) - _MAX_NAMES} more"]
    return " & ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


async def _find_user(api: APIClient) -> str | None:
    try:
        content = await api.post(_REVIEW_URL, payload=_REVIEW, timeout=_REVIEW_TIMEOUT, backoffs=())
        return str(codec.decode_answer(content)["status"]["userInfo"]["username"])
    except (APIError, APINetworkError, LoginError, ValueError, LookupError, TypeError):
        return None  # older servers and some proxies do not support it
