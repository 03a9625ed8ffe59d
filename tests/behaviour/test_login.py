"""Login: where the credentials come from, and what if there are none or they are refused."""
from __future__ import annotations

import asyncio
import dataclasses
import pathlib
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Journal, Logs, Operator


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """With no login handlers."""
    return kopf.OperatorRegistry()


async def test_the_kubeconfig_is_used_by_default(
        operator: Operator, registry: kopf.OperatorRegistry, kex: Objects, logs: Logs,
) -> None:
    kopf.on.create("kopfexamples", registry=registry)(lambda **_: None)
    await operator.start()
    await kex.create()
    await kex.wait_handled()
    assert logs.find("Initial authentication has been initiated.")
    assert logs.find("Initial authentication has finished.")


async def test_without_any_credentials_it_exits_with_a_clear_error(
        operator: Operator, registry: kopf.OperatorRegistry, logs: Logs,
        monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    kopf.on.event("kopfexamples", registry=registry)(lambda **_: None)
    logs.expected.append("kubeconfig")
    await operator.launch()
    with pytest.raises(kopf.LoginError, match="kubeconfig"):
        await operator.wait()


async def test_handlers_that_bring_nothing_are_a_clear_error(
        operator: Operator, registry: kopf.OperatorRegistry, logs: Logs,
) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> None:
        return None

    kopf.on.event("kopfexamples", registry=registry)(lambda **_: None)
    await operator.launch()
    with pytest.raises(kopf.LoginError):
        await operator.wait()


async def test_permanent_errors_of_handlers_are_the_error_of_the_operator(
        operator: Operator, registry: kopf.OperatorRegistry, logs: Logs,
) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> None:
        raise kopf.PermanentError("the vault is sealed")

    kopf.on.event("kopfexamples", registry=registry)(lambda **_: None)
    await operator.launch()
    with pytest.raises(kopf.LoginError, match="the vault is sealed"):
        await operator.wait()


@pytest.mark.fastforward
async def test_temporary_errors_of_handlers_are_retried(
        operator: Operator, registry: kopf.OperatorRegistry, kex: Objects, calls: Journal[Any],
) -> None:
    @kopf.on.login(registry=registry)
    async def login(retry: int, **kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append(retry)
        if retry < 3:
            raise kopf.TemporaryError("the vault is slow", delay=30)
        return kopf.login_with_kubeconfig(**kwargs)

    kopf.on.create("kopfexamples", registry=registry)(lambda **_: None)
    await operator.start()
    await kex.create()
    await kex.wait_handled()
    assert calls == [0, 1, 2, 3]


async def test_one_of_several_handlers_is_enough(
        operator: Operator, registry: kopf.OperatorRegistry, kex: Objects,
) -> None:
    @kopf.on.login(registry=registry)
    async def bad(**_: Any) -> None:
        raise kopf.PermanentError("never")

    @kopf.on.login(registry=registry)
    async def none(**_: Any) -> None:
        return None

    @kopf.on.login(registry=registry)
    def good(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**kwargs)

    kopf.on.create("kopfexamples", registry=registry)(lambda **_: None)
    await operator.start()
    await kex.create()
    await kex.wait_handled()


async def test_refused_credentials_are_renewed_and_nothing_is_lost(
        operator: Operator, registry: kopf.OperatorRegistry, kex: Objects, calls: Journal[Any],
) -> None:
    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append("login")
        info = kopf.login_with_kubeconfig(**kwargs)
        # Every login brings others: those that were refused once are not used again.
        return None if info is None else dataclasses.replace(info, priority=len(calls))

    @kopf.on.create("kopfexamples", registry=registry, id="a")
    @kopf.on.create("kopfexamples", registry=registry, id="b")
    async def fn(name: str, **_: Any) -> None:
        calls.append(name)

    await operator.start()
    operator.cluster.faults.inject(401, verb="patch", resource="kopfexamples", times=2)
    await kex.create()
    await kex.wait_handled()
    assert calls.items.count("obj") == 2
    assert calls.items.count("login") == 3


async def test_credentials_refused_forever_end_the_operator(
        operator: Operator, registry: kopf.OperatorRegistry, logs: Logs,
) -> None:
    """The same credentials are brought again and again: there is no sense in going on with them."""
    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**kwargs)

    kopf.on.event("kopfexamples", registry=registry)(lambda **_: None)
    operator.cluster.faults.inject(401, path="kopf.dev")
    logs.expected.append(".")
    await operator.launch()
    with pytest.raises(kopf.LoginError):
        await operator.wait()


async def test_refused_credentials_in_the_middle_end_the_operator(
        operator: Operator, registry: kopf.OperatorRegistry, kex: Objects, logs: Logs, calls: Journal[Any],
) -> None:
    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if calls:
            raise kopf.PermanentError("the account is locked")
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.create("kopfexamples", registry=registry)
    async def fn(**_: Any) -> None:
        calls.append("called")
        operator.cluster.faults.inject(401, resource="kopfexamples", verb="patch")
        operator.cluster.faults.inject(401, resource="kopfexamples", verb="watch")

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        calls.append("cleaned")

    logs.expected.append(".")
    await operator.start()
    await kex.create()
    with pytest.raises(kopf.LoginError, match="the account is locked"):
        await asyncio.wait_for(operator.wait(), 10)
    assert calls == ["called", "cleaned"]
