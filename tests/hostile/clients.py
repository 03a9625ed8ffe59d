"""
Honest clients: they ask again and again, each time after the previous answer, and tell how long each answer has taken.

It is a program of its own, as what is measured is the server, not the event loop of the tests:
``clients.py URL PACE new|kept [CAFILE]``. The body is in stdin; if there is none, it is GET. Each line of the output is
either the time between the client's first packet and the end of the answer, in seconds, or what has come instead.
"""

from __future__ import annotations

import http.client
import ssl
import sys
import time
import urllib.parse

TIMEOUT = 120.0


def ask(connection: http.client.HTTPConnection, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request("POST" if body else "GET", path, body or None, headers)
    response = connection.getresponse()
    content = response.read()
    if response.status != 200 or (body and b'"allowed":true' not in content):
        raise http.client.HTTPException(f"{response.status}: {content!r}")


def run(connection: http.client.HTTPConnection, path: str, body: bytes, *, pace: float, is_kept: bool) -> None:
    while True:
        started = time.monotonic()
        try:
            ask(connection, path, body)
        except (OSError, http.client.HTTPException) as e:
            line = f"{e!r} after {time.monotonic() - started:.3f}s"
            connection.close()
        else:
            line = f"{time.monotonic() - started:.6f}"
            if not is_kept:
                connection.close()
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        time.sleep(pace)


def main() -> None:
    url = urllib.parse.urlsplit(sys.argv[1])
    host, port = str(url.hostname), int(url.port or 0)
    connection = (
        http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        if url.scheme == "http"
        else http.client.HTTPSConnection(
            host, port, timeout=TIMEOUT, context=ssl.create_default_context(cafile=sys.argv[4])
        )
    )
    run(connection, url.path, sys.stdin.buffer.read(), pace=float(sys.argv[2]), is_kept=sys.argv[3] == "kept")


if __name__ == "__main__":
    main()
