import kopf
import kubernetes
import pykube


@kopf.on.create("widgets")
def create_fn(namespace, spec, **_):
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": spec["image"]}]}}
    kopf.adopt(pod, strict=True)
    api = kubernetes.client.CoreV1Api()
    api.create_namespaced_pod(namespace, pod)  # expect: not-idempotent


@kopf.on.update("widgets")
def update_fn(name, namespace, **_):
    try:
        create_service(name, namespace)
    except kubernetes.client.ApiException as e:
        raise kopf.TemporaryError("Not now.") from e


def create_service(name, namespace):
    service = {"metadata": {"name": name}}
    kubernetes.client.CoreV1Api().create_namespaced_service(namespace, service)  # expect: not-idempotent


@kopf.on.resume("widgets")
def resume_fn(name, **_):
    api = pykube.HTTPClient(pykube.KubeConfig.from_env())
    pykube.ConfigMap(api, {"metadata": {"name": name}}).create()  # expect: not-idempotent
