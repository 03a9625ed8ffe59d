"""Hosts of Ingresses belong to one namespace: who was there first. Others are refused."""

import os

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=int(os.environ.get("WEBHOOK_PORT", "9443")))
    settings.admission.managed = "unique-hosts.example.com"


@kopf.index("networking.k8s.io", "v1", "ingresses")
def namespaces_by_host(spec, namespace, **_):
    return dict.fromkeys(get_hosts(spec), namespace)


@kopf.on.validate("networking.k8s.io", "v1", "ingresses", operations=["CREATE", "UPDATE"])
def check_hosts(spec, namespace, namespaces_by_host: kopf.Index, **_):
    for host in get_hosts(spec):
        for other in set(namespaces_by_host.get(host, ())) - {namespace}:
            raise kopf.AdmissionError(f"The host {host} belongs to the namespace {other!r}.", code=409)


def get_hosts(spec):
    return sorted({rule["host"] for rule in spec.get("rules", []) if "host" in rule})
