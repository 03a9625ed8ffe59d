import kopf
import kubernetes


@kopf.on.update("widgets", field="spec.size")
async def resize_fn(name, namespace, new, **_):
    api = kubernetes.client.AppsV1Api()
    patch = {"spec": {"replicas": new}}
    api.patch_namespaced_deployment(name, namespace, patch)  # expect: blocking-call
