"""An operator of websites: each has a config map, a deployment, a domain of a registrar, and a certificate."""

import contextlib
import datetime
import os

import kubernetes
import kubernetes.dynamic
import registrar

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=int(os.environ.get("WEBHOOK_PORT", "9443")))
    settings.admission.managed = "websites.example.com"


@kopf.on.validate("websites", operations=["CREATE", "UPDATE"])
def check_domain(spec, **_):
    if "." not in spec["domain"]:
        raise kopf.AdmissionError(f"It is not a domain: {spec['domain']}")


@kopf.on.create("websites")
@kopf.on.update("websites", field="spec.domain")
async def register_domain(spec, patch, **_):
    try:
        patch.status["registration"] = await registrar.register(spec["domain"])
    except registrar.RegistrarError as e:
        raise kopf.TemporaryError(str(e), delay=60) from e


@kopf.on.create("websites")
@kopf.on.update("websites", field="spec")
@kopf.on.resume("websites")
def bring_children(name, namespace, spec, **_):
    """Create or update everything: it can be called at any time, and any number of times."""
    labels = {"website": name}
    container = {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    children = [
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"index.html": spec.get("text", "Hello!")}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {"replicas": spec.get("replicas", 1), "selector": {"matchLabels": labels}, "template": template},
        },
    ]
    with kubernetes.client.ApiClient() as client:
        dynamic = kubernetes.dynamic.DynamicClient(client)
        for child in children:
            child["metadata"] = {"name": name, "namespace": namespace, "labels": labels}
            kopf.adopt(child)
            resource = dynamic.resources.get(api_version=child["apiVersion"], kind=child["kind"])
            resource.server_side_apply(body=child, namespace=namespace, field_manager="websites", force_conflicts=True)


# Not by raw events: if these fail, they are not tried again.
@kopf.on.create("apps", "v1", "deployments", labels={"website": kopf.PRESENT})
@kopf.on.update("apps", "v1", "deployments", labels={"website": kopf.PRESENT}, field="status")
def report_readiness(name, namespace, status, **_):
    """Tell in the status of the website how many of its pods are ready."""
    patch = {"status": {"ready": f"{status.get('readyReplicas', 0)}/{status.get('replicas', 0)}"}}
    with kubernetes.client.ApiClient() as client, contextlib.suppress(kubernetes.client.exceptions.NotFoundException):
        api = kubernetes.client.CustomObjectsApi(client)
        api.patch_namespaced_custom_object_status("example.com", "v1", namespace, "websites", name, patch)


@kopf.timer("websites", interval=24 * 3600)
async def renew_certificate(spec, status, patch, **_):
    """Once a day, look at the certificate: a new one is needed two days before its end."""
    end = status.get("certificate", {}).get("expires")
    now = datetime.datetime.now(datetime.UTC)
    if end is None or datetime.datetime.fromisoformat(end) - now < datetime.timedelta(days=2):
        patch.status["certificate"] = {"expires": await registrar.issue_certificate(spec["domain"])}


@kopf.on.delete("websites")
async def release_domain(spec, **_):
    await registrar.release(spec["domain"])
