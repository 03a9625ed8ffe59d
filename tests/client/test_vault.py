from __future__ import annotations

import asyncio
import datetime
import logging
import os
import pathlib
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kopf._client.auth.credentials import AiohttpSession, ConnectionInfo, LoginError
from kopf._client.auth.vault import Vault
from kopf._client.http import aiohttp_session
from kopf._client.http.connections import Connection
from kopf._client.http.direct_session import DirectSession
from kopf._client.http.transport import read_body
from kopf._settings.settings import NetworkingSettings, OperatorSettings
from tests.client.raw_server import OK, PATIENT, RawServer, answer, echo, fetch

ERROR = Exception("HTTP 401")


@pytest.fixture
async def vault() -> AsyncIterator[Vault]:
    vault = Vault(OperatorSettings())
    yield vault
    await vault.close()


def info(token: str, **kwargs: int | datetime.datetime | str | pathlib.Path) -> ConnectionInfo:
    return ConnectionInfo(server="http://host", token=token, **kwargs)  # type: ignore[arg-type]


def expiring(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


async def peek(vault: Vault) -> Connection:
    connection = await vault.acquire()
    vault.release(connection)
    return connection


async def collect(vault: Vault) -> set[str | None]:
    return {(await peek(vault)).token for _ in range(100)}


async def until_closed(connection: Connection) -> None:
    while not connection.session.closed:
        await asyncio.sleep(0)


async def until_open(session: DirectSession, count: int) -> None:
    while len(session._wires) != count:
        await asyncio.sleep(0.001)


async def test_requests_wait_for_the_first_login(vault: Vault) -> None:
    tasks = [asyncio.create_task(peek(vault)) for _ in range(3)]
    await vault.wait_until_depleted()
    assert not any(task.done() for task in tasks)
    vault.populate([info("a")])
    assert {connection.token for connection in await asyncio.gather(*tasks)} == {"a"}


async def test_nobody_is_asked_to_login_until_somebody_needs_it(vault: Vault) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(vault.wait_until_depleted(), timeout=0.01)


async def test_equal_credentials_are_used_in_random_order(vault: Vault) -> None:
    vault.populate([info("a"), info("b"), info("c")])
    assert await collect(vault) == {"a", "b", "c"}


async def test_higher_priorities_are_preferred(vault: Vault) -> None:
    vault.populate([info("a"), info("b", priority=10), info("c", priority=10), info("d", priority=-1)])
    assert await collect(vault) == {"b", "c"}
    for _ in range(2):
        vault.invalidate(await peek(vault), ERROR)
    assert await collect(vault) == {"a"}
    vault.invalidate(await peek(vault), ERROR)
    assert await collect(vault) == {"d"}


async def test_repeated_logins_bring_the_same_credentials(vault: Vault) -> None:
    vault.populate([info("a")])
    before = await peek(vault)
    vault.populate([info("a"), info("a"), info("b")])
    assert await collect(vault) == {"a", "b"}
    assert not before.session.closed


async def test_only_the_refused_credentials_are_excluded(vault: Vault) -> None:
    vault.populate([info("a"), info("b")])
    refused = await vault.acquire()
    vault.invalidate(refused, ERROR)
    vault.invalidate(refused, ERROR)  # e.g. by a parallel request of the same connection
    vault.release(refused)
    assert await collect(vault) == {"a", "b"} - {refused.token}


async def test_late_refusals_do_not_affect_those_who_replaced(vault: Vault) -> None:
    vault.populate([info("a")])
    first, second = await vault.acquire(), await vault.acquire()
    vault.invalidate(first, ERROR)
    vault.populate([info("b")])
    vault.invalidate(second, ERROR)
    assert await collect(vault) == {"b"}
    vault.release(first)
    vault.release(second)


async def test_sessions_are_closed_after_their_last_request(vault: Vault) -> None:
    vault.populate([info("a"), info("b")])
    connection = await vault.acquire()
    while await vault.acquire() is not connection:
        pass
    vault.invalidate(connection, ERROR)
    vault.release(connection)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not connection.session.closed
    vault.release(connection)
    await until_closed(connection)


async def test_unused_connections_are_not_kept_for_lost_credentials(vault: Vault) -> None:
    """A stream goes on for minutes after its token has expired; what else is open then, is of no use to anybody."""
    server = RawServer(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"), echo)
    async with server.serve():
        vault.populate([ConnectionInfo(server=server.url, token="a")])
        streaming, late, connection = [await vault.acquire() for _ in range(3)]
        session = connection.session
        assert isinstance(session, DirectSession)
        async with session.request("GET", "/", None, None, PATIENT) as stream:
            async with session.request("GET", "/", None, None, PATIENT) as response:
                await fetch(session)
                vault.release(connection)
                vault.invalidate(connection, ERROR)
                await until_open(session, 2)
                assert await read_body(response) == b"/"
            vault.release(late)
            await until_open(session, 1)
            assert await stream.read_chunk() == b"{}"
        vault.release(streaming)
        await until_closed(connection)


async def test_depletion_leads_to_another_login(vault: Vault) -> None:
    vault.populate([info("a")])
    vault.invalidate(await peek(vault), ERROR)
    tasks = [asyncio.create_task(peek(vault)) for _ in range(3)]
    await vault.wait_until_depleted()
    vault.populate([info("a"), info("b")])
    assert {connection.token for connection in await asyncio.gather(*tasks)} == {"b"}


async def test_refused_credentials_are_not_accepted_again_unless_insisted(vault: Vault) -> None:
    vault.populate([info("a")])
    vault.invalidate(await peek(vault), ERROR)
    tasks = [asyncio.create_task(peek(vault)) for _ in range(2)]
    await vault.wait_until_depleted()
    with pytest.raises(LoginError, match=r"Ran out of valid credentials: .* The reason: HTTP 401"):
        vault.populate([info("a")])
    assert not any(task.done() for task in tasks)
    vault.populate([info("a")], again=True)
    assert {connection.token for connection in await asyncio.gather(*tasks)} == {"a"}


async def test_the_memory_of_refused_credentials_is_limited(vault: Vault) -> None:
    for number in range(1000):
        vault.populate([info(f"token-{number}")])
        vault.invalidate(await peek(vault), ERROR)
    with pytest.raises(LoginError, match=r"Ran out of valid credentials"):
        vault.populate([info(f"token-{number}") for number in range(950, 1000)])
    assert len(vault._refused) == 100


async def test_login_brings_nothing_at_all(vault: Vault) -> None:
    with pytest.raises(LoginError, match=r"no credentials are found. Make a kubeconfig available"):
        vault.populate([])


async def test_login_can_be_tried_again_after_a_failure(vault: Vault) -> None:
    task = asyncio.create_task(peek(vault))
    await vault.wait_until_depleted()
    vault.fail(LoginError("the login handler has failed"))
    with pytest.raises(LoginError, match=r"the login handler has failed"):
        await task
    task = asyncio.create_task(peek(vault))
    await vault.wait_until_depleted()
    vault.populate([info("a")])
    assert (await task).token == "a"


async def test_losses_are_of_those_that_have_worked(vault: Vault) -> None:
    for number in range(4):
        vault.populate([info(f"token-{number}")])
        connection = await peek(vault)
        connection.has_worked = number % 2 == 0
        vault.invalidate(connection, ERROR)
    assert vault.losses == 2


async def test_refused_sessions_are_not_accepted_even_if_insisted(vault: Vault) -> None:
    session = aiohttp.ClientSession()
    credentials = AiohttpSession(server="http://host/", aiohttp_session=session)
    vault.populate([credentials])
    vault.invalidate(await peek(vault), ERROR)
    with pytest.raises(LoginError):
        vault.populate([credentials], again=True)


async def test_those_who_stopped_waiting_do_no_harm(vault: Vault) -> None:
    task = asyncio.create_task(peek(vault))
    await vault.wait_until_depleted()
    task.cancel()
    vault.populate([info("a")])
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await peek(vault)).token == "a"


async def test_unusable_credentials_are_skipped_and_explained(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    broken = ConnectionInfo(server="https://host", ca_path="/absent/ca.crt")
    vault.populate([broken, info("a")])
    assert (await peek(vault)).token == "a"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "The credentials for https://host cannot be used: " in caplog.messages[0]


async def test_only_unusable_credentials(vault: Vault, tmp_path: pathlib.Path) -> None:
    with pytest.raises(LoginError, match=r"The reason: .*No such file .*absent"):
        vault.populate([ConnectionInfo(server="http://host", token_path=tmp_path / "absent")])


@pytest.mark.fastforward
async def test_expired_credentials_are_dropped(vault: Vault) -> None:
    vault.populate([info("a", expiration=expiring(60), priority=1), info("b", expiration=expiring(600))])
    first = await peek(vault)
    assert first.token == "a"
    await asyncio.sleep(61)
    second = await peek(vault)
    assert second.token == "b"
    await until_closed(first)
    await asyncio.sleep(600)
    assert not vault.is_populated
    with pytest.raises(LoginError, match=r"The reason: The credentials have expired at 20"):
        vault.populate([])


async def test_already_expired_credentials(vault: Vault) -> None:
    vault.populate([info("a", expiration=expiring(-1)), info("b", expiration=expiring(100))])
    assert await collect(vault) == {"b"}


@pytest.mark.fastforward
async def test_token_files_are_read_again(vault: Vault, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text("a")
    vault.populate([ConnectionInfo(server="http://host", token_path=path)])
    connection = await peek(vault)
    assert isinstance(connection.session, DirectSession)
    heads = connection.session._heads
    assert heads.headers["Authorization"] == "Bearer a"

    path.write_text("b\n")
    assert (await peek(vault)).token == "a"  # not too often
    await asyncio.sleep(61)
    assert await peek(vault) is connection
    assert heads.headers["Authorization"] == "Bearer b"

    path.unlink()  # being replaced, or the pod is terminated
    await asyncio.sleep(61)
    assert (await peek(vault)).token == "b"


async def test_refused_files_are_accepted_with_other_tokens(vault: Vault, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text("a")
    credentials = ConnectionInfo(server="http://host", token_path=path)
    vault.populate([credentials])
    vault.invalidate(await peek(vault), ERROR)
    path.write_text("b")
    vault.populate([credentials])
    assert await collect(vault) == {"b"}


async def test_ready_made_sessions(vault: Vault) -> None:
    session = aiohttp.ClientSession()
    vault.populate([AiohttpSession(server="http://host/", aiohttp_session=session)])
    connection = await peek(vault)
    assert isinstance(connection.session, aiohttp_session.AiohttpSession)
    assert connection.session.raw is session
    vault.invalidate(connection, ERROR)
    await until_closed(connection)


async def test_ready_made_sessions_closed_by_their_makers(vault: Vault) -> None:
    session = aiohttp.ClientSession()
    vault.populate([AiohttpSession(server="http://host/", aiohttp_session=session, priority=1), info("a")])
    await session.close()
    assert (await peek(vault)).token == "a"


async def test_same_ready_made_session_is_not_closed_when_it_comes_again(vault: Vault) -> None:
    session = aiohttp.ClientSession()
    credentials = AiohttpSession(server="http://host/", aiohttp_session=session)
    vault.populate([credentials])
    vault.populate([credentials])
    await asyncio.gather(*vault._closing)
    assert not session.closed
    connection = await peek(vault)
    assert isinstance(connection.session, aiohttp_session.AiohttpSession)
    assert connection.session.raw is session


async def test_proxies_of_the_environment_are_opt_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    settings = OperatorSettings()
    vault = Vault(settings)
    vault.populate([info("a")])
    assert isinstance((await peek(vault)).session, DirectSession)
    settings.networking.trust_env = True
    vault.populate([info("b", priority=1)])
    connection = await peek(vault)
    assert isinstance(connection.session, aiohttp_session.AiohttpSession)
    assert connection.session.raw.trust_env
    await vault.close()


async def test_everything_is_closed_in_the_end() -> None:
    vault = Vault(OperatorSettings())
    vault.populate([info("a"), info("b", priority=1), info("c")])
    used = await vault.acquire()
    vault.invalidate(used, ERROR)
    unused = await peek(vault)
    await vault.close()
    assert used.session.closed
    assert unused.session.closed
    vault.release(used)
    vault.populate([info("d")])
    with pytest.raises(LoginError, match=r"the operator has ended"):
        await vault.acquire()
    await vault.close()


async def test_those_who_wait_are_told_of_the_end() -> None:
    vault = Vault(OperatorSettings())
    task = asyncio.create_task(peek(vault))
    await vault.wait_until_depleted()
    await vault.close()
    with pytest.raises(LoginError, match=r"the operator has ended"):
        await task


@pytest.mark.parametrize(
    ("name", "value", "is_direct"),
    [("NO_PROXY", "x", True), ("https_proxy", "", True), ("https_proxy", "http://p", False), ("ALL_PROXY", "x", False)],
)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have proxies in their settings, too")
async def test_sessions_are_ours_unless_the_environment_has_proxies(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, name: str, value: str, is_direct: bool
) -> None:
    for other in [other for other in os.environ if other.lower().endswith(("_proxy", "netrc"))]:
        monkeypatch.delenv(other)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(name, value)
    vault.populate([ConnectionInfo(server="https://host", trust_env=True)])
    assert isinstance((await peek(vault)).session, DirectSession) == is_direct


@pytest.mark.fastforward
async def test_tokens_that_cannot_be_sent(vault: Vault, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text("good")
    vault.populate([ConnectionInfo(server="http://host", token_path=path)])
    path.write_text("S3cr3t\nhalf")
    await asyncio.sleep(61)
    assert (await peek(vault)).token == "good"
    with pytest.raises(LoginError, match="'Authorization' has characters that cannot be sent") as info:
        Vault(OperatorSettings()).populate([ConnectionInfo(server="http://host", token="S3cr3t\nhalf")])
    assert "S3cr3t" not in str(info.value)


async def test_servers_that_are_no_urls(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LoginError, match=r"The server 'https://\*\*\*@host' is not a proper URL"):
        vault.populate([ConnectionInfo(server="https://user:S3cr3t/x@host")])
    assert "S3cr3t" not in caplog.text


@pytest.mark.parametrize(("client", "cls"), [("direct", DirectSession), ("aiohttp", aiohttp_session.AiohttpSession)])
async def test_the_chosen_client_makes_the_requests(client: str, cls: type) -> None:
    server = RawServer(answer(OK, OK))
    async with server.serve() as url:
        connection = Connection(ConnectionInfo(server=url), NetworkingSettings(client=client))
        try:
            assert isinstance(connection.session, cls)
            for _ in range(2):
                async with connection.session.request("GET", "/x", None, None, PATIENT) as response:
                    assert await read_body(response) == b"{}"
        finally:
            await connection.session.close()


async def test_other_clients_are_refused() -> None:
    with pytest.raises(ValueError, match=r"settings.networking.client must be one of direct, aiohttp, not 'curl'"):
        Connection(ConnectionInfo(server="http://127.0.0.1:1"), NetworkingSettings(client="curl"))
