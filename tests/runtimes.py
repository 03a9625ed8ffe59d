"""The part of an operator that handles objects, with no operator around it: for tests of what stands on that."""

from __future__ import annotations

from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.indexing.indexers import Indexers
from kopf._controller.indexing.readiness import IndexReadiness
from kopf._controller.memos import Memo, Memos
from kopf._controller.runtime import Runtime
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.lifecycles import get_default_lifecycle
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.time_source import Clock
from kopf._settings.settings import OperatorSettings


def make_runtime(registry: OperatorRegistry | None = None, *, api: APIClient | None = None) -> Runtime:
    """Make it with default settings; without the API, there are no credentials, and so no requests."""
    settings = OperatorSettings()
    indexers = Indexers([] if registry is None else registry.get_indexing())
    return Runtime(
        settings=settings,
        api=APIClient(Vault(settings), settings) if api is None else api,
        clock=Clock(),
        lifecycle=get_default_lifecycle(),
        executor=HandlerExecutor(settings.execution),
        memos=Memos(Memo()),
        indices=indexers.indices,
        indexers=indexers,
        index_readiness=IndexReadiness(),
        comparable_versions=True,
    )
