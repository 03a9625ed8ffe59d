#!/usr/bin/env python3
"""
A stand-in for the program of ngrok: it says and does what the library expects of the real one, but opens no tunnels.

What it was started with, and which tunnels were requested, is written to the file next to it. It exits when there is
a file named ``exit`` next to it.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(sys.argv[0]).parent


class Handler(http.server.BaseHTTPRequestHandler):
    """The local API of the agent."""

    def do_GET(self) -> None:
        self._respond({"endpoints": [], "tunnels": []})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (HERE / "tunnel.json").write_text(json.dumps(request))
        self._respond({**request, "public_url": "https://random.ngrok.example", "url": "https://random.ngrok.example"})

    def _respond(self, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    (HERE / "arguments.json").write_text(json.dumps(sys.argv[1:]))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say = "t=2026-01-01T00:00:00+0000 lvl=info msg={} obj={} addr={}"
    sys.stdout.write(say.format('"starting web service"', "web", f"127.0.0.1:{server.server_port}") + "\n")
    sys.stdout.write(say.format('"client session established"', "tunnels", "x") + "\n")
    sys.stdout.write(say.format('"tunnel session started"', "tunnels", "x") + "\n")
    sys.stdout.flush()
    while not (HERE / "exit").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
