"""What servers have inside of an operator: the client of the API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import kopf
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient, offering
from kopf_cluster import LocalCluster


@contextlib.asynccontextmanager
async def inside_operator(cluster: LocalCluster, token: str | None = None) -> AsyncIterator[APIClient]:
    """Let the servers in this context talk to the cluster, as operators do."""
    info = kopf.ConnectionInfo(server=cluster.url, token=token or cluster.token, ca_data=cluster.ca_data)
    async with connecting(info) as api:
        yield api


@contextlib.asynccontextmanager
async def connecting(info: kopf.ConnectionInfo) -> AsyncIterator[APIClient]:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = [0.1]
    vault = Vault(settings)
    vault.populate([info])
    api = APIClient(vault, settings)
    try:
        with offering(api):
            yield api
    finally:
        await vault.close()
