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
from kopf._controller.runtime import Runtime
from kopf._coordination.peering import Peering
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.namespaces import Namespaces
from kopf._operator.resource_observer import ResourceObserver
from kopf._settings.settings import OperatorSettings
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


async def summarize_readiness(
    runtime: Runtime,
    registry: OperatorRegistry,
    resources: ResourceObserver,
    namespaces: Namespaces,
    peering: Peering,
    replica: ReplicaStatus | None,
) -> None:
    """
    Log the summary once, when the resources are known, everything is indexed, and the peering is decided.

    Then, wait forever, like all tasks of the operator.
    """
    _, watched = await resources.found
    await peering.settle()
    if not runtime.index_readiness.is_open:
        is_indexed = asyncio.Event()
        runtime.index_readiness.call_when_open(is_indexed.set)
        await is_indexed.wait()
    user = await _find_user(runtime.api.for_tools)
    count = len(registry.resources) + len(registry.webhooks) + len(registry.conversions)
    parts = [f"{count} handler{'s' * (count != 1)}", _describe_place(watched, namespaces.names)]
    parts += [] if user is None else [f"as {user}"]
    logger.info("ready: %s", ", ".join([*parts, await _describe_coordination(runtime.settings, peering, replica)]))
    await asyncio.Event().wait()


async def _describe_coordination(settings: OperatorSettings, peering: Peering, replica: ReplicaStatus | None) -> str:
    if replica is None:
        return peering.describe()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_JOINING_TIMEOUT):
            await replica.is_known.wait()
    state = replica.get()
    text = f"joining the replicas of {settings.coordination.name!r}" if state is None else state.describe()
    return text if settings.peering.standalone else f"{text}, {peering.describe()}"


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
