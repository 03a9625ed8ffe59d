"""Credentials that come late: the old ones are refused already, and the new ones are not there yet."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.peerings import PeeringObject
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, get_duration, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.usefixtures("by_network")]

REFUSED = "the login has brought nothing new. The reason: .* 401 Unauthorized"


@pytest.fixture(autouse=True)
def _handlers(as_users_run_it: None) -> None:
    kopf.on.create("kopfexamples")(do_nothing)


class LateFile:
    """A kubeconfig that somebody else copies from the cluster's one, sooner or later."""

    def __init__(self, operator: Operator, path: pathlib.Path) -> None:
        self._operator = operator
        self.path = path
        self.renew()

    def renew(self) -> None:
        shutil.copy(self._operator.cluster.kubeconfig, self.path)

    def expire(self) -> None:
        """Refuse the token that is in the file, also to those who only watch."""
        self._operator.cluster.faults.expire_token()
        self._operator.cluster.faults.cut_watches()


@pytest.fixture
def file(operator: Operator, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> LateFile:
    file = LateFile(operator, tmp_path / "late.yaml")
    monkeypatch.setenv("KUBECONFIG", str(file.path))
    return file


def use_cluster_token(operator: Operator, kex: Objects) -> None:
    kex.api.session.headers["Authorization"] = f"Bearer {operator.cluster.token}"


@pytest.mark.parametrize("delay", [0.5, 10, 50])
async def test_late_tokens_are_waited_for(
    operator: Operator,
    file: LateFile,
    kex: Objects,
    logs: Logs,
    delay: float,
) -> None:
    await operator.start()
    file.expire()
    await logs.wait("The login has failed, and is tried again in .* seconds: Ran out of valid credentials: .*")
    await asyncio.sleep(delay)
    file.renew()
    use_cluster_token(operator, kex)
    await kex.create_and_wait()
    assert not logs.find(".*Traceback.*")


async def test_late_tokens_are_waited_for_again_and_again(operator: Operator, file: LateFile, kex: Objects) -> None:
    """The patience is for each refusal, not for the whole life of the operator."""
    await operator.start()
    for number in range(3):
        file.expire()
        await asyncio.sleep(40)
        file.renew()
        use_cluster_token(operator, kex)
        await kex.create_and_wait(f"obj{number}")


async def test_half_written_files_are_read_again(operator: Operator, file: LateFile, kex: Objects) -> None:
    """By default, a login with a broken kubeconfig is not repeated; but it is if it is broken meanwhile."""
    await operator.start()
    file.path.write_text("apiVersion: [")
    file.expire()
    await asyncio.sleep(10)
    file.renew()
    use_cluster_token(operator, kex)
    await kex.create_and_wait()


@pytest.mark.parametrize("times", [1, 4])
async def test_stray_refusals_of_good_credentials_are_survived(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    times: int,
) -> None:
    """E.g. the service that knows the tokens is down: it is not the credentials that are bad."""
    await operator.start()
    operator.cluster.faults.inject(401, verb="patch", resource="kopfexamples", times=times)
    await kex.create_and_wait()
    assert len(logs.find("The login has failed, and is tried again in .*")) == times


async def test_good_credentials_that_are_refused_forever_end_the_operator(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """After about a minute; and the server is not asked more and more often."""

    @kopf.on.login(id="login")
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append(now())
        return kopf.login_with_kubeconfig(**kwargs)

    logs.expected.append(".")
    await operator.start()
    operator.cluster.faults.inject(401)
    operator.cluster.faults.cut_watches()
    started = now()
    with pytest.raises(kopf.LoginError, match=REFUSED):
        await operator.wait()
    assert 55 < now() - started < 80
    assert len(calls) < 20
    assert max(get_pauses(calls)[2:]) > 10


async def test_wrong_credentials_of_the_first_login_end_the_operator_at_once(
    operator: Operator,
    change_kubeconfig: Callable[..., None],
    logs: Logs,
) -> None:
    change_kubeconfig(user={"token": "wrong"})
    logs.expected.append(".")
    assert await get_duration(operator.launch_in_vain(kopf.LoginError, REFUSED)) < 1


async def test_handlers_that_give_up_are_not_asked_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """Those who know that it is in vain, say so; and the operator ends properly."""

    @kopf.on.login(id="login")
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append("login")
        if len(calls) > 1:
            raise kopf.PermanentError("the account is locked")
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.create("kopfexamples")
    async def fn(**_: Any) -> None:
        operator.cluster.faults.inject(401)  # for what is saved of it, too
        operator.cluster.faults.cut_watches()

    kopf.on.cleanup()(calls.noting("cleaned"))
    logs.expected.append(".")
    await operator.start_and_create(kex)
    with pytest.raises(kopf.LoginError, match="the account is locked"):
        await operator.wait()
    assert calls == ["login", "login", "cleaned"]


async def test_expired_credentials_are_waited_for(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The login brings what has expired already: it is not renewed yet."""

    @kopf.on.login(id="login")
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append("login")
        info = kopf.login_with_kubeconfig(**kwargs)
        lifetime = datetime.timedelta(seconds={1: 5, 2: -1, 3: -1}.get(len(calls), 3600))
        expiration = datetime.datetime.now(datetime.UTC) + lifetime
        return None if info is None else dataclasses.replace(info, expiration=expiration)

    await operator.start()
    await asyncio.sleep(10)
    await kex.create_and_wait()
    assert len(calls) == 4


async def test_the_exit_is_not_held_by_late_credentials(
    operator: Operator,
    file: LateFile,
    peering: PeeringObject,
    logs: Logs,
) -> None:
    """The peers cannot be told of it, but they see it soon."""
    operator.set("peering.mandatory", True)
    await operator.start()
    file.expire()
    await logs.wait("The login has failed, and is tried again in .*")
    assert await get_duration(operator.stop()) < 15
