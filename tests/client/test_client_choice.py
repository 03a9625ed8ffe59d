"""Which client makes the requests: the own one, or that of the library."""
from __future__ import annotations

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.http.aiohttp_session import AiohttpSession
from kopf._client.http.connections import Connection
from kopf._client.http.direct_session import DirectSession
from kopf._client.http.transport import Limits, read_body
from kopf._settings.settings import NetworkingSettings
from tests.client.raw_server import OK, RawServer, answer


@pytest.mark.parametrize(("client", "cls"), [("direct", DirectSession), ("aiohttp", AiohttpSession)])
async def test_the_chosen_client_makes_the_requests(client: str, cls: type) -> None:
    server = RawServer(answer(OK, OK))
    async with server.serve() as url:
        connection = Connection(ConnectionInfo(server=url), NetworkingSettings(client=client))
        try:
            assert isinstance(connection.session, cls)
            for _ in range(2):
                async with connection.session.request("GET", "/x", None, None, Limits(total=50)) as response:
                    assert await read_body(response) == b"{}"
        finally:
            await connection.close()


async def test_others_are_refused() -> None:
    with pytest.raises(ValueError, match=r"settings.networking.client must be one of direct, aiohttp, not 'curl'"):
        Connection(ConnectionInfo(server="http://127.0.0.1:1"), NetworkingSettings(client="curl"))
