"""
Connections of the operator with no TCP and no TLS: the same client, the same HTTP, the same server.

Tests of behaviour use them, unless they are about the connections: see the fixture ``by_network``.
"""

from __future__ import annotations

import pytest

from kopf._client.http.connecting import Connector
from kopf._client.http.transport import UnreachableError
from kopf._client.http.wire import Wire
from kopf_cluster import LocalCluster


def connect_in_memory(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the operators of this test come to the cluster in memory; to everything else, they go by the network."""
    network, by_network = cluster.open_network(), Connector.connect

    async def connect(self: Connector, wire: Wire, timeout: float | None, deadline: float | None) -> None:
        if self._address.url != cluster.url:
            await by_network(self, wire, timeout, deadline)
            return
        try:
            await network.connect(lambda: wire)
        except ConnectionRefusedError as exc:
            raise UnreachableError(f"Cannot connect to host {self._address.url} [{exc}]") from exc

    monkeypatch.setattr(Connector, "connect", connect)
