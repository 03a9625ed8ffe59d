from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings
from tests.authorities import Authority
from tests.client.scripted import ScriptedServer


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start()
    yield server
    await server.stop()
    assert not server.unexpected


@pytest.fixture
def settings() -> OperatorSettings:
    return OperatorSettings()


@pytest.fixture
async def vault(server: ScriptedServer, settings: OperatorSettings) -> AsyncIterator[Vault]:
    vault = Vault(settings)
    vault.populate([ConnectionInfo(server=server.url, token="token-1")])
    yield vault
    await vault.close()


@pytest.fixture
async def empty_vault(settings: OperatorSettings) -> AsyncIterator[Vault]:
    """With nothing inside, and no patience."""
    settings.networking.error_backoffs = ()
    vault = Vault(settings)
    yield vault
    await vault.close()


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def api(vault: Vault, settings: OperatorSettings) -> APIClient:
    return APIClient(vault, settings)
