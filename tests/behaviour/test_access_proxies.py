"""Proxies & TLS between the operator and the cluster: as the kubeconfig says, and as the settings say."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
import yarl

import kopf
from tests.authorities import Authority
from tests.behaviour.objects import Objects
from tests.behaviour.running import Logs, Operator, do_nothing
from tests.client.proxying import HttpProxy, Proxy, SocksProxy, TlsRelay

pytestmark = pytest.mark.usefixtures("by_network")


@pytest.fixture(autouse=True)
def _default_login(as_users_run_it: None) -> None:
    kopf.on.create("kopfexamples")(do_nothing)


@pytest.mark.parametrize("cls", [HttpProxy, SocksProxy])
async def test_proxies_of_the_kubeconfig(
    operator: Operator,
    kex: Objects,
    change_kubeconfig: Any,
    cls: type[Proxy],
) -> None:
    proxy = cls()
    async with proxy.serve():
        change_kubeconfig(proxy_url=proxy.url)
        await operator.start_and_handle(kex)
        await operator.stop()
    address = yarl.URL(operator.cluster.url).authority
    assert set(proxy.requests) == {address}


@pytest.mark.fastforward
async def test_proxies_that_are_down_are_waited_for(
    operator: Operator,
    kex: Objects,
    change_kubeconfig: Any,
    logs: Logs,
) -> None:
    proxy = HttpProxy()
    async with proxy.serve():
        pass  # now it is known where it will be
    change_kubeconfig(proxy_url=proxy.url)
    launching = asyncio.create_task(operator.start())
    port = yarl.URL(proxy.url).port
    await logs.wait(rf"A request has failed and will be repeated in .* GET https://.*127.0.0.1:{port}.*")
    async with proxy.serve(port=port):
        await launching
        await kex.create_and_wait()
        await operator.stop()


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_proxies_of_the_environment_are_used_only_on_demand(
    operator: Operator,
    kex: Objects,
    monkeypatch: pytest.MonkeyPatch,
    is_trusted: bool,
) -> None:
    proxy = HttpProxy()
    async with proxy.serve():
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)

        def configure(settings: kopf.OperatorSettings) -> None:
            settings.networking.trust_env = is_trusted

        operator.configure = configure
        await operator.start_and_handle(kex)
        await operator.stop()
    assert bool(proxy.requests) is is_trusted


@pytest.mark.parametrize("is_strict", [True, False])
async def test_sloppy_certificates_are_accepted_on_demand(
    operator: Operator,
    kex: Objects,
    change_kubeconfig: Any,
    tmp_path: pathlib.Path,
    is_strict: bool,
) -> None:
    """As of clusters that were created years ago, which Python distrusts since 3.13."""
    operator.set("networking.strict_x509", is_strict)
    operator.set("networking.error_backoffs", [])
    authority = Authority(sloppy=True)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    relay = TlsRelay(operator.cluster.url, operator.cluster.ca_data)
    async with relay.serve(authority.make_server_context("127.0.0.1")):
        change_kubeconfig(server=relay.url, certificate_authority="ca.crt", certificate_authority_data=None)
        if is_strict:
            await operator.launch_in_vain(ConnectionError, r"RFC 5280 .*settings.networking.strict_x509 = False")
        else:
            await operator.start_and_handle(kex)
            await operator.stop()


async def test_other_names_of_servers(
    operator: Operator,
    kex: Objects,
    change_kubeconfig: Any,
    tmp_path: pathlib.Path,
) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    relay = TlsRelay(operator.cluster.url, operator.cluster.ca_data)
    async with relay.serve(authority.make_server_context("kubernetes.internal")):
        change_kubeconfig(
            server=relay.url,
            certificate_authority="ca.crt",
            certificate_authority_data=None,
            tls_server_name="kubernetes.internal",
        )
        await operator.start_and_handle(kex)
        await operator.stop()


async def test_unverified_servers(operator: Operator, kex: Objects, change_kubeconfig: Any) -> None:
    change_kubeconfig(certificate_authority_data=None, insecure_skip_tls_verify=True)
    await operator.start_and_handle(kex)
