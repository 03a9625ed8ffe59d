"""The connections that are abandoned, and whose servers never say goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings
from tests.authorities import Authority

PATIENCE = 15.0
"""For how long the server waits for the end, in seconds: event loops alone would need 30 and more."""


class MuteServer:
    """Begins a stream over TLS, and does not even read anything afterwards, until it is asked how it has ended."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_ended = False
        self._thread.start()

    def _serve(self) -> None:
        accepted, _ = self._listener.accept()
        with self._context.wrap_socket(accepted, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
            raw = socket.socket(fileno=secure.detach())
        with raw:
            self._is_over.wait()
            raw.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                while raw.recv(65536):
                    pass
        self.is_ended = True

    def finish(self) -> None:
        """Wait for the end of the connection; fail if it stays open."""
        self._is_over.set()
        self._thread.join()
        self._listener.close()


async def _abandon_stream(info: ConnectionInfo, server: MuteServer) -> None:
    settings = OperatorSettings()
    vault = Vault(settings)
    vault.populate([info])
    async with contextlib.aclosing(APIClient(vault, settings).stream("/x")) as batches:
        async for batch in batches:
            if batch:
                break
    await vault.close()
    # The loop goes on: it is not its end that closes the socket.
    await asyncio.to_thread(server.finish)


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_servers_that_never_say_goodbye(caplog: pytest.LogCaptureFixture, library: str) -> None:
    factory = pytest.importorskip(library).new_event_loop
    authority = Authority()
    server = MuteServer(authority.make_server_context("127.0.0.1"))
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_abandon_stream(ConnectionInfo(server=server.url, ca_data=authority.pem), server))
    assert server.is_ended
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
