"""Login handlers and the vault, with no operator and no requests between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf._client.auth.credentials import LoginError
from kopf._client.auth.vault import Vault
from kopf._client.http.connections import Connection
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.activities import Activities
from kopf._operator.login import Authenticator
from kopf._settings.settings import OperatorSettings

pytestmark = pytest.mark.fastforward


class Door:
    """The vault with its authenticator."""

    def __init__(self) -> None:
        settings = OperatorSettings()
        self.registry = OperatorRegistry()
        self.vault = Vault(settings)
        self.attempts = 0
        activities = Activities(settings, HandlerExecutor(settings.execution))
        self.authenticator = Authenticator(self.vault, self.registry, activities)

    def declare(self, *outcomes: Any, id: str = "login") -> None:
        """Declare a login handler that brings these tokens, or other results, or raises errors; the last one stays."""
        remaining = [*outcomes]

        @kopf.on.login(id=id, registry=self.registry, errors=kopf.ErrorsMode.PERMANENT)
        async def fn(**_: Any) -> Any:
            self.attempts += 1
            outcome = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(outcome, Exception):
                raise outcome
            return kopf.ConnectionInfo(server="http://host", token=outcome) if isinstance(outcome, str) else outcome

    async def take(self) -> Connection:
        connection = await self.vault.acquire()
        self.vault.release(connection)
        return connection

    async def lose(self, *, has_worked: bool) -> asyncio.Task[None]:
        """Log in, and let the credentials be refused then; give the task that replaces them."""
        await self.authenticator.login()
        running = asyncio.create_task(self.authenticator.run())
        connection = await self.take()
        connection.has_worked = has_worked
        self.vault.invalidate(connection, Exception("HTTP 401"))
        return running


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    yield door
    await door.vault.close()


async def test_all_that_is_brought_is_used(door: Door) -> None:
    for token in ("a", "b"):
        door.declare(token, id=token)
    await door.authenticator.login()
    assert {(await door.take()).token for _ in range(100)} == {"a", "b"}


async def test_one_of_several_is_enough(door: Door) -> None:
    door.declare(ValueError("boo!"), id="bad")
    door.declare("a", id="good")
    door.declare(None, id="none")
    await door.authenticator.login()
    assert (await door.take()).token == "a"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (ValueError("boo!"), "boo!"),
        (kopf.PermanentError("no way"), "no way"),
        (123, "The login handler 'login' has returned something other than .*: int"),
        (None, "no credentials are found"),
    ],
)
async def test_failures(door: Door, outcome: object, error: str) -> None:
    door.declare(outcome)
    with pytest.raises(LoginError, match=error):
        await door.authenticator.login()


@pytest.mark.parametrize(("verbose", "expected"), [(True, True), (False, False)])
async def test_what_is_told(door: Door, caplog: pytest.LogCaptureFixture, verbose: bool, expected: bool) -> None:
    caplog.set_level(logging.INFO)
    door.declare("a")
    await door.authenticator.login(verbose=verbose)
    assert any("succeeded" in message for message in caplog.messages) is expected


async def test_lost_credentials_are_replaced(door: Door) -> None:
    door.declare("a", "b")
    running = await door.lose(has_worked=True)
    assert (await door.take()).token == "b"
    running.cancel()


@pytest.mark.parametrize(
    ("outcomes", "has_worked", "error"),
    [
        pytest.param(["a"], False, "Ran out of valid credentials", id="never-worked"),
        pytest.param(["a", ValueError("boo!")], True, "boo!", id="failed-handler"),
    ],
)
async def test_what_is_given_up(door: Door, outcomes: list[Any], has_worked: bool, error: str) -> None:
    door.declare(*outcomes)
    running = await door.lose(has_worked=has_worked)
    with pytest.raises(LoginError, match=error):
        await door.take()
    with pytest.raises(LoginError, match=error):
        await running
    assert door.attempts == 2


async def test_what_has_worked_is_tried_again_for_a_while(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """A server can refuse what is good, e.g. while it starts; or whoever renews the credentials is late."""
    door.declare("a", "a", "b")
    running = await door.lose(has_worked=True)
    started = asyncio.get_running_loop().time()
    assert (await door.take()).token in ("a", "b")
    assert 1 <= asyncio.get_running_loop().time() - started < 2
    assert "The login has failed, and is tried again in 1 seconds" in caplog.text
    running.cancel()
