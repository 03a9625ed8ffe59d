"""Connections, and what happens to them, are the subject here: those of the client are real ones."""
from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Client, connect


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[Client]:
    async with connect(cluster) as client:
        yield client
