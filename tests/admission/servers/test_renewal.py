"""Renewals: certificates change, by themselves or in the files, and nobody notices."""

from __future__ import annotations

import asyncio
import pathlib
import ssl
from typing import Any

import aiohttp
import pytest

from kopf._admission.servers.identities import READS
from kopf._values.reviews import WebhookClientConfig
from tests.admission.servers.serving import (
    ImpatientServer,
    Reviewer,
    Serving,
    connect,
    get_bundle,
    get_port,
    send,
    serving,
    trust,
)
from tests.authorities import Authority, Files
from tests.patience import PATIENCE, wait_until


async def get_served_certificate(config: WebhookClientConfig) -> str:
    """Get the certificate in use, in PEM."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", get_port(config), ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(der)


async def wait_for_certificate(config: WebhookClientConfig, expected: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await get_served_certificate(config)).strip() != expected.decode().strip():
            await asyncio.sleep(0.01)


class Load:
    """Clients that send reviews all the time: over kept connections, and over new ones, by the latest config."""

    def __init__(self, running: Serving) -> None:
        super().__init__()
        self.count = 0
        self._running = running
        self._stopped = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._send_kept())
                group.create_task(self._send_anew())

    async def _send_kept(self) -> None:
        async with connect() as session:
            context = trust(self._running.configs[-1])
            while not self._stopped:
                status, _ = await send(self._running.configs[-1], session=session, context=context)
                assert status == 200
                self.count += 1
                await asyncio.sleep(0.01)

    async def _send_anew(self) -> None:
        while not self._stopped:
            assert (await send(self._running.configs[-1]))[0] == 200
            self.count += 1

    async def stop(self) -> int:
        self._stopped = True
        await self._task
        return self.count


# --- files ---


@pytest.fixture
def files(tmp_path: pathlib.Path, authority: Authority) -> Files:
    return authority.write(tmp_path / "tls", "localhost")


def make_server(files: Files, **options: Any) -> ImpatientServer:
    return ImpatientServer(port=0, certfile=files.certificate, pkeyfile=files.key, cafile=files.ca, **options)


async def test_files_are_renewed_under_load(authority: Authority, files: Files, tmp_path: pathlib.Path) -> None:
    async with serving(make_server(files)) as running:
        load = Load(running)
        for _ in range(3):
            authority.write(tmp_path / "tls", "localhost")
            await wait_for_certificate(running.configs[0], files.certificate.read_bytes())
        assert await load.stop() > 0
        assert len(running.configs) == 1  # the authority is the same


async def test_kubernetes_replaces_mounted_secrets_by_links(authority: Authority, tmp_path: pathlib.Path) -> None:
    authority.write(tmp_path / "first", "localhost")
    second = authority.write(tmp_path / "second", "localhost")
    link = tmp_path / "mounted"
    link.symlink_to(tmp_path / "first")
    async with serving(make_server(Files(link))) as running:
        (tmp_path / "new").symlink_to(tmp_path / "second")
        (tmp_path / "new").replace(link)
        await wait_for_certificate(running.configs[0], second.certificate.read_bytes())
        assert (await send(running.configs[0]))[0] == 200


async def test_the_authority_is_replaced_under_load(files: Files, tmp_path: pathlib.Path) -> None:
    """Both authorities are published until the new certificate is in use."""
    async with serving(make_server(files)) as running:
        load = Load(running)
        old = files.ca.read_text()
        new_files = Authority().write(tmp_path / "new", "localhost")
        for name in ["ca", "key", "certificate"]:
            getattr(new_files, name).replace(getattr(files, name))
        await running.wait_for_configs(3)
        await wait_until(lambda: load.count > 10)
        await load.stop()
        new = files.ca.read_text()
        assert [get_bundle(config) for config in running.configs] == [old, old + new, new]
        assert (await send(running.configs[-1]))[0] == 200


async def test_only_the_bundle_is_changed(files: Files, tmp_path: pathlib.Path) -> None:
    async with serving(make_server(files)) as running:
        content = files.ca.read_bytes() + Authority("other").pem
        (tmp_path / "new.pem").write_bytes(content)
        (tmp_path / "new.pem").replace(files.ca)
        await wait_until(lambda: get_bundle(running.configs[-1]).encode() == content)


async def test_broken_files_are_not_used(
    authority: Authority,
    files: Files,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(make_server(files)) as running:
        before = await get_served_certificate(running.configs[0])
        certificate, key = authority.sign("localhost")
        files.certificate.write_bytes(certificate)  # the key is not replaced yet
        await wait_until(lambda: "do not fit together" in caplog.text)
        assert await get_served_certificate(running.configs[0]) == before
        files.certificate.unlink()
        await wait_until(lambda: "No such file" in caplog.text)
        assert (await send(running.configs[0]))[0] == 200
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(key)
        await wait_for_certificate(running.configs[0], certificate)
    assert "Traceback" not in caplog.text


async def test_dumps_that_fail_do_no_harm(
    files: Files,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "dumps").mkdir()
    async with serving(make_server(files, cadump=tmp_path / "dumps" / "ca.pem")) as running:
        (tmp_path / "dumps" / "ca.pem").unlink()
        (tmp_path / "dumps").rmdir()
        new = tmp_path / "new.pem"
        new.write_bytes(files.ca.read_bytes() + Authority("other").pem)
        new.replace(files.ca)
        await wait_until(lambda: "No such file" in caplog.text)
        assert (await send(running.configs[-1]))[0] == 200
        (tmp_path / "dumps").mkdir()
        await wait_until(lambda: (tmp_path / "dumps" / "ca.pem").exists())


async def test_dumps_that_fail_at_the_start(files: Files, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="dumps"):
        async with serving(make_server(files, cadump=tmp_path / "dumps" / "ca.pem")):
            pass


@pytest.mark.parametrize("content", ["", "garbage", "half"])
async def test_broken_bundles_are_not_published(content: str, files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(make_server(files)) as running:
        good = files.ca.read_text()
        files.ca.write_text(good + good[:100] if content == "half" else content)
        await wait_until(lambda: "The CA bundle of the webhook server" in caplog.text)
        assert (await send(running.configs[0]))[0] == 200
    assert len(running.configs) == 1


async def test_the_same_trouble_is_told_of_once(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(make_server(files)):
        files.key.unlink()
        failures = READS.errors
        await wait_until(lambda: READS.errors > failures + 2)
    assert caplog.text.count("No such file") == 1


async def test_authorities_of_clients_are_replaced(files: Files, tmp_path: pathlib.Path) -> None:
    """Those who are not trusted anymore cannot connect anymore."""
    first, second = (Authority(name).write(tmp_path / name, "client") for name in ["first", "second"])
    (tmp_path / "clients.pem").write_bytes(first.ca.read_bytes())
    reviewer = Reviewer()
    async with serving(make_server(files, verify_cafile=tmp_path / "clients.pem"), reviewer) as running:
        contexts = [
            trust(running.configs[0], certfile=client.certificate, keyfile=client.key) for client in (first, second)
        ]
        assert (await send(running.configs[0], context=contexts[0]))[0] == 200
        (tmp_path / "clients.pem").write_bytes(second.ca.read_bytes())
        async with asyncio.timeout(PATIENCE):
            while not await is_accepted(running.configs[0], contexts[1]):
                await asyncio.sleep(0.01)
        assert not await is_accepted(running.configs[0], contexts[0])


async def is_accepted(config: WebhookClientConfig, context: ssl.SSLContext) -> bool:
    try:
        return (await send(config, context=context))[0] == 200
    except aiohttp.ClientError:
        return False


async def test_certificates_in_a_ready_made_context_are_renewed(authority: Authority, files: Files) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    async with serving(make_server(files, context=context)) as running:
        certificate, key = authority.sign("localhost")
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(key)
        await wait_for_certificate(running.configs[0], certificate)
        assert (await send(running.configs[0]))[0] == 200


async def test_reviews_in_progress_survive_the_renewal(authority: Authority, files: Files) -> None:
    reviewer = Reviewer()
    reviewer.allowed_to_finish.clear()
    async with serving(make_server(files), reviewer) as running:
        sending = asyncio.create_task(send(running.configs[0]))
        await reviewer.started.wait()
        certificate, key = authority.sign("localhost")
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(key)
        await wait_for_certificate(running.configs[0], certificate)
        reviewer.allowed_to_finish.set()
        assert (await sending)[0] == 200
