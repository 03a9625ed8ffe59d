"""
Bytes over TLS: whatever is to be sent is sent as it is, and the answers are taken apart with no mercy.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from kopf.testing import LocalCluster
from tests.patience import PATIENCE


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection at a time, which is opened anew if the server has closed it."""

    def __init__(self, cluster: LocalCluster) -> None:
        host, _, port = cluster.url.removeprefix("https://").partition(":")
        self._address = host, int(port)
        self._context = ssl.create_default_context(cadata=cluster.ca_data.decode())
        self._token = cluster.token
        self._socket: ssl.SSLSocket | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        content_type: str | None = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request that is correct as HTTP, with anything in it, and give the answer."""
        if body is not None:
            headers = {"Content-Length": str(len(body)), **(headers or {})}
            if content_type is not None:
                headers["Content-Type"] = content_type
        data = self.head(method, target, headers) + (body or b"")
        reused = self._socket is not None
        answer = self.exchange(data, bodiless=method == "HEAD")
        if answer is None and reused:  # as all clients do: the connection could be closed after the last answer
            answer = self.exchange(data, bodiless=method == "HEAD")
        assert answer is not None, f"no answer to {method} {target[:200]!r}"
        return answer

    def send(self, method: str, target: str, obj: Any = None, content_type: str = "application/json") -> Answer:
        """The same, with the body in JSON."""
        return self.request(method, target, None if obj is None else json.dumps(obj).encode(), content_type)

    def put(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Make the object be so, whatever it was before, and give it as it is then."""
        name = obj["metadata"]["name"]
        answer = self.send("DELETE", f"{path}/{name}")
        assert answer.status in (200, 404), answer
        answer = self.send("POST", path, obj)
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.json
        return made

    def head(self, method: str, target: str, headers: Mapping[str, str] | None = None) -> bytes:
        """Make the beginning of a request, up to the empty line."""
        headers = {"Host": "localhost", "Authorization": f"Bearer {self._token}", **(headers or {})}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode()

    def exchange(self, data: bytes, *, bodiless: bool = False, half_closed: bool = False) -> Answer | None:
        """Send whatever it is, and give the answer; none if the server just closes the connection."""
        wire = self._open()
        try:
            wire.sendall(data)
            if half_closed:
                # That is all we have to say, but not in the words of TLS: the method of the class would end it too.
                socket.socket.shutdown(wire, socket.SHUT_WR)
            answer = self._read(wire, bodiless)
        except (ConnectionError, ssl.SSLEOFError):
            answer = None
        if answer is None or half_closed or answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def abandon(self, data: bytes) -> None:
        """Send whatever it is, and break the connection."""
        self._open().sendall(data)
        self.close()

    def _open(self) -> ssl.SSLSocket:
        if self._socket is None:
            raw = socket.create_connection(self._address, timeout=PATIENCE)
            try:
                self._socket = self._context.wrap_socket(raw, server_hostname=self._address[0])
            except BaseException:
                raw.close()
                raise
        return self._socket

    def _read(self, wire: ssl.SSLSocket, bodiless: bool) -> Answer | None:
        while b"\r\n\r\n" not in self._rest:
            if not (chunk := wire.recv(65536)):
                assert not self._rest, f"a part of an answer: {self._rest!r}"
                return None
            self._rest += chunk
        head, _, rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("utf-8").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert "transfer-encoding" not in headers, "an answer to a broken request is never a stream"
        length = 0 if bodiless else int(headers["content-length"])
        while len(rest) < length:
            chunk = wire.recv(65536)
            assert chunk, "the answer is shorter than it claims"
            rest += chunk
        self._rest = rest[length:]
        return Answer(int(first.split()[1]), headers, rest[:length])
