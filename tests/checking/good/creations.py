"""Creations that can be repeated."""
import contextlib

import kopf
import kubernetes
import kubernetes_asyncio
import pykube


@kopf.on.create("widgets")
def create_fn(name, namespace, **_):
    api = kubernetes.client.CoreV1Api()
    try:
        api.create_namespaced_service(namespace, {"metadata": {"name": name}})
    except kubernetes.client.ApiException as e:
        if e.status == 409:
            api.patch_namespaced_service(name, namespace, {})
        else:
            raise
    with contextlib.suppress(kubernetes.client.ApiException):
        api.create_namespaced_config_map(namespace, {"metadata": {"name": name}})


@kopf.on.update("widgets")
async def update_fn(name, namespace, **_):
    async with kubernetes_asyncio.client.ApiClient() as client:
        api = kubernetes_asyncio.client.CoreV1Api(client)
        pods = await api.list_namespaced_pod(namespace)
        if not pods.items:
            await api.create_namespaced_pod(namespace, {"metadata": {"name": name}})


@kopf.on.resume("widgets")
def resume_fn(name, **_):
    api = pykube.HTTPClient(pykube.KubeConfig.from_env())
    child = pykube.ConfigMap(api, {"metadata": {"name": name}})
    if not child.exists():
        child.create()


@kopf.on.delete("widgets")
def delete_fn(name, namespace, **_):
    ensure(kubernetes.client.BatchV1Api(), namespace, {"metadata": {"name": name}})


def ensure(api, namespace, body):
    try:
        api.create_namespaced_job(namespace, body)
    except kubernetes.client.ApiException as e:
        if e.status != 409:
            raise kopf.TemporaryError("Not now.") from e
