"""
A web application with an operator inside: it shows what the operator knows. They live and die together.

    uvicorn app:app
"""

import asyncio
import contextlib
import signal

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import kopf

registry = kopf.OperatorRegistry()  # of its own, so that there can be several operators in one application
specs = {}


@kopf.on.event("kopfexamples", registry=registry)
async def remember(event, name, spec, **_):
    if event["type"] == "DELETED":
        specs.pop(name, None)
    else:
        specs[name] = dict(spec)


async def show(request):
    return JSONResponse(specs)


@contextlib.asynccontextmanager
async def lifespan(app):
    ready, stop = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True, ready_flag=ready, stop_flag=stop))

    # The application begins to serve when the operator works, and does not begin if it cannot work.
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([operator, waiting], return_when=asyncio.FIRST_COMPLETED)
    if operator.done():
        waiting.cancel()
        await operator

    # If the operator fails later, the web server is told to stop the way it is always told so.
    operator.add_done_callback(lambda _: stop.is_set() or signal.raise_signal(signal.SIGTERM))

    # If the web server stops, so does the operator. The error of the operator, if any, is raised here.
    try:
        yield
    finally:
        stop.set()
        await operator


app = Starlette(routes=[Route("/", show)], lifespan=lifespan)
