"""
An operator inside of a FastAPI application: one process, one event loop, one page of metrics.

    uvicorn app:app
"""

import asyncio
import contextlib
import signal

import fastapi
import prometheus_client

import kopf

ORDERS = prometheus_client.Counter("shop_orders", "How many orders were accepted.", ["size"])

registry = kopf.OperatorRegistry()  # of its own, so that there can be several operators in one application
orders = set()


@kopf.on.startup(registry=registry)
def configure(settings: kopf.OperatorSettings, **_):
    settings.metrics.enabled = True  # the application serves them, together with its own


@kopf.on.create("orders", registry=registry)
async def accept(name, spec, patch, **_):
    ORDERS.labels(size=spec["size"]).inc()
    patch.status["phase"] = "Accepted"


@kopf.on.event("orders", registry=registry)
async def remember(event, name, **_):
    change = orders.discard if event["type"] == "DELETED" else orders.add
    change(name)


@contextlib.asynccontextmanager
async def lifespan(app):
    ready, stop = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True, ready_flag=ready, stop_flag=stop))
    await ready.wait()  # it is also set if the operator ends before that
    operator.add_done_callback(lambda _: stop.is_set() or signal.raise_signal(signal.SIGTERM))  # they die together
    try:
        if not operator.done():
            yield
    finally:
        stop.set()
        await operator  # it raises the error of the operator, if there is one


app = fastapi.FastAPI(lifespan=lifespan)
app.mount("/metrics", prometheus_client.make_asgi_app())


@app.get("/orders")
async def list_orders() -> list[str]:
    return sorted(orders)
