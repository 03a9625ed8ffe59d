"""How the webhook servers and tunnels are run by the operator; here, those of the user's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import pytest

import kopf
from kopf._values.patches import Patch
from tests.admission.configurations import NAME, URL, Configurations
from tests.admission.reviewing import make_review
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Journal, Logs, Operator

pytestmark = pytest.mark.fastforward


def use(operator: Operator, server: Any, *, managed: str | None = None) -> None:
    operator.set("admission.server", server)
    operator.set("admission.managed", managed)


def declare(**options: Any) -> None:
    @kopf.on.validate("kopfexamples", id="check", **options)
    def check(**_: Any) -> None: ...


async def test_no_server_is_an_error_at_startup(operator: Operator) -> None:
    declare()
    await operator.launch()
    with pytest.raises(
        Exception,
        match=r"admission handlers \(check\), but no webhook server or tunnel.*"
        r"settings.admission.server",
    ):
        await operator.wait()
    assert not operator.cluster.counters


async def test_no_server_is_needed_without_handlers(operator: Operator) -> None:
    await operator.launch()
    await asyncio.sleep(10)
    assert operator.is_running


async def test_servers_are_not_run_without_handlers(operator: Operator, calls: Journal[str]) -> None:
    async def server(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        calls.append("called")
        yield URL

    use(operator, server)
    await operator.launch()
    await asyncio.sleep(10)
    assert operator.is_running
    assert calls == []


async def test_servers_set_in_startup_handlers(operator: Operator, calls: Calls) -> None:
    async def server(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        yield URL
        calls.append(await fn(make_review()))
        await asyncio.Event().wait()

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = server

    declare()
    await operator.launch()
    await calls.wait_length(1)
    assert calls.items[0]["response"]["allowed"]


async def test_exited_servers_stop_the_operator(operator: Operator) -> None:
    async def server(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        yield URL
        await asyncio.sleep(10)

    declare()
    use(operator, server)
    await operator.launch()
    with pytest.raises(Exception, match="The webhook server or tunnel <function .*server.*> has exited"):
        await operator.wait()


async def test_failed_servers_stop_the_operator(operator: Operator) -> None:
    async def server(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        await asyncio.sleep(1)
        if URL:
            raise OSError("the port is occupied")
        yield URL

    declare()
    use(operator, server)
    await operator.launch()
    with pytest.raises(OSError, match="the port is occupied"):
        await operator.wait()


class ManagedServer:
    """A server with resources to be released."""

    def __init__(self, calls: Journal[str], name: str, substitute: ManagedServer | None = None) -> None:
        self._calls = calls
        self._name = name
        self._substitute = substitute

    async def __aenter__(self) -> ManagedServer:
        self._calls.append(f"{self._name} entered")
        return self if self._substitute is None else self._substitute

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._calls.append(f"{self._name} exited")

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        self._calls.append(f"{self._name} called")
        try:
            yield URL
            await asyncio.Event().wait()
        finally:
            self._calls.append(f"{self._name} closed")


@pytest.mark.parametrize("is_factory", [False, True])
async def test_context_managers(operator: Operator, calls: Journal[str], *, is_factory: bool) -> None:
    declare()
    use(operator, ManagedServer(calls, "it", ManagedServer(calls, "substitute") if is_factory else None))
    await operator.launch()
    await calls.wait_length(2)
    await operator.stop()
    name = "substitute" if is_factory else "it"
    assert calls == ["it entered", f"{name} called", f"{name} closed", "it exited"]


async def test_reviews_are_answered_until_the_end(
    operator: Operator,
    configurations: Configurations,
    calls: Calls,
) -> None:
    """Those in progress, and those that come a moment after the webhooks are removed: nothing is known at once."""

    @kopf.on.validate("kopfexamples", id="check")
    async def check(**_: Any) -> None:
        await asyncio.sleep(0.3)

    async def server(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        yield URL
        await configurations.wait_webhooks("check")
        while await configurations.get_webhooks():
            calls.append((await fn(make_review()))["response"]["allowed"])
        calls.append("removed")
        calls.append((await fn(make_review()))["response"]["allowed"])
        await asyncio.Event().wait()

    use(operator, server, managed=NAME)
    await operator.launch()
    await calls.wait_length(2)
    await operator.stop()
    assert calls.items[-3:] == [True, "removed", True]


async def test_own_changes_are_reviewed_while_the_operator_exits(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The handlers that finish during the exit can still change the objects that are reviewed by persistent ones."""
    fn: asyncio.Future[kopf.WebhookFn] = asyncio.get_running_loop().create_future()

    async def server(actual: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        fn.set_result(actual)
        try:
            yield URL
            await asyncio.Event().wait()
        finally:
            calls.append("closed")

    @kopf.on.create("kopfexamples")
    async def create(patch: Patch, **_: Any) -> None:
        calls.append("handling")
        await asyncio.sleep(1)
        assert (await (await fn)(make_review()))["response"]["allowed"]
        calls.append("handled")

    declare()
    use(operator, server)
    await operator.start()
    await kex.create()
    await calls.wait(lambda items: "handling" in items)
    await operator.stop()
    assert calls == ["handling", "handled", "closed"]


async def test_the_address_is_logged(operator: Operator, logs: Logs) -> None:
    async def server(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        yield {"service": {"namespace": "ns", "name": "svc"}, "caBundle": "c2VjcmV0"}
        yield URL
        await asyncio.Event().wait()

    declare()
    use(operator, server)
    await operator.launch()
    await logs.wait("The webhook server is ready: service ns/svc")
    await logs.wait("The webhook server is ready: https://127.0.0.1:1/root")
