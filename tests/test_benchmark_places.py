"""The benchmarks leave nothing behind in clusters of others: see `benchmarks/places.py`."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks import places
from benchmarks.loading import Client, RequestError

from kopf_cluster import LocalCluster


@pytest.mark.parametrize(
    "trouble",
    [
        {"verb": "create", "resource": "namespaces"},  # not permitted
        {"verb": "list", "resource": "widgets"},  # not served
    ],
    ids=["namespace", "resource"],
)
async def test_early_failures_leave_nothing(trouble: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_TIMEOUT", 1.0)
    async with LocalCluster() as cluster:
        cluster.faults.inject(403, **trouble)
        with pytest.raises((RequestError, TimeoutError)):
            async with places.foreign_place(str(cluster.kubeconfig)):
                pass
        cluster.faults.clear()
        async with Client.connected(places.read_info(str(cluster.kubeconfig))) as client:
            with pytest.raises(RequestError, match="not found"):
                await client.request("GET", places._CRD)
