"""The price of HTTPS itself: a server that reads reviews and admits everything, with no operator behind it."""

from __future__ import annotations

import json
import pathlib
import ssl
import sys

from aiohttp import web


async def admit(request: web.Request) -> web.Response:
    review = json.loads(await request.read())
    response = {"uid": review["request"]["uid"], "allowed": True}
    content = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
    return web.Response(body=json.dumps(content), content_type="application/json")


def main(directory: pathlib.Path) -> None:
    try:
        import uvloop  # the operators use it too if it is there
    except ImportError:
        pass
    else:
        uvloop.install()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    app = web.Application()
    app.router.add_post("/{path:.*}", admit)
    port = int((directory / "port").read_text())
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=context, access_log=None, print=None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
