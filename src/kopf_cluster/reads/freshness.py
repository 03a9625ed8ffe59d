"""
Reads that must not be older than some version: they wait for it a little, and are refused if it does not come.

See "Unavailable resource versions" of the Kubernetes "API Concepts".
"""
from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from kopf_cluster import sessions, statuses
from kopf_cluster.requests import Request
from kopf_cluster.store.storage import Change, Store

#: How long a version of the future is waited for, in seconds; as in kube-apiserver.
MAX_WAIT: Final = 3.0


def require_version(store: Store, version: int, request: Request) -> None:
    """Raise the refusal if there is no such version yet, not even after a while."""
    if version > store.revision:
        wanted = request.read_timeout() or MAX_WAIT
        sessions.ask(("version", version), lambda: _wait(store, version, min(wanted, MAX_WAIT)))
    if version > store.revision:
        raise statuses.resource_version_too_large(version, store.revision)


async def _wait(store: Store, version: int, timeout: float) -> None:
    reached = asyncio.Event()

    def observe(bucket: str, change: Change) -> None:
        if store.revision >= version:
            reached.set()

    store.observers.append(observe)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await reached.wait()
    finally:
        store.observers.remove(observe)
