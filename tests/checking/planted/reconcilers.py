import time

import kopf


@kopf.reconcile("widgets", owns="configmaps", retriez=3)  # expect: declaration
async def reconcile_all(**_):
    yield {}


@kopf.reconcile("widgts", owns="configmaps")  # expect: unknown-resource
async def reconcile_one(name, spec, **_):
    time.sleep(1)  # expect: blocking-call
    yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": spec.get("sise")}}


@kopf.reconcile("widgets", owns="configmaps")  # expect: declaration
async def reconcile_two(nmae, spec, **_):
    yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": spec.get("sise")}}  # expect: unknown-field
