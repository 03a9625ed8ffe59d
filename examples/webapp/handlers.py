"""A web application is a Deployment, a Service, and, if it has a host, an Ingress. They are kept as the object says."""

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

import kopf


@dataclass
class WebAppSpec:
    image: str
    host: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] = 8080
    replicas: Annotated[int, Meta(ge=0, le=100)] = 1


@dataclass
class WebAppStatus:
    conditions: kopf.ConditionList = field(default_factory=list)


class WebApp(
    kopf.CustomResource[WebAppSpec, WebAppStatus],
    group="example.com",
    version="v1",
    columns={"Image": ".spec.image", "Host": ".spec.host", "Ready": '.status.conditions[?(@.type=="Ready")].status'},
):
    """An application that is served over HTTP."""


@kopf.reconcile(WebApp, owns=["deployments", "services", "ingresses.networking.k8s.io"], backoff=kopf.exponential())
async def serve(name, spec: WebAppSpec, **_):
    labels = {"app": name}
    container = {"name": "web", "image": spec.image, "ports": [{"containerPort": spec.port}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    selector = {"matchLabels": labels}
    yield make("apps/v1", "Deployment", replicas=spec.replicas, selector=selector, template=template)
    yield make("v1", "Service", selector=labels, ports=[{"port": 80, "targetPort": spec.port}])
    if spec.host is not None:
        backend = {"service": {"name": name, "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        yield make("networking.k8s.io/v1", "Ingress", rules=[{"host": spec.host, "http": {"paths": paths}}])


def make(api_version, kind, **spec):
    """Make a child. Its name, namespace, and labels come from the object, if they are not set here."""
    return {"apiVersion": api_version, "kind": kind, "spec": spec}
