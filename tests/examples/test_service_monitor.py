"""The ServiceMonitor of the example: it is accepted, and leads to the port of the pods of the example deployment."""

from __future__ import annotations

from typing import Any

import yaml

from kopf.testing import LocalCluster
from tests.examples.conftest import EXAMPLES

DURATION = "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}

#: The part of the schema by the Prometheus Operator (v1, all versions of it) that the example is about; nothing else.
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "servicemonitors.monitoring.coreos.com",
        "annotations": {"api-approved.kubernetes.io": "unapproved"},
    },
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["endpoints", "selector"],
                                "properties": {
                                    "endpoints": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {
                                                "port": {"type": "string"},
                                                "targetPort": {"x-kubernetes-int-or-string": True},
                                                "path": {"type": "string"},
                                                "interval": {
                                                    "type": "string",
                                                    "pattern": DURATION,
                                                },
                                                "scheme": {
                                                    "type": "string",
                                                    "enum": ["http", "https", "HTTP", "HTTPS"],
                                                },
                                            },
                                        },
                                    },
                                    "namespaceSelector": {
                                        "type": "object",
                                        "properties": {
                                            "any": {"type": "boolean"},
                                            "matchNames": {"type": "array", "items": {"type": "string"}},
                                        },
                                    },
                                    "selector": {"type": "object", "properties": {"matchLabels": LABELS}},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def read(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / path).read_text()))


def test_the_service_monitor_leads_to_the_port_of_the_operator() -> None:
    [deployment] = read("deployment/deployment.yaml")
    with LocalCluster() as cluster:
        cluster.apply(CRD)
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kopfexample"}})
        service, monitor = [cluster.apply(manifest)[0] for manifest in read("monitoring/servicemonitor.yaml")]
    written = read("monitoring/servicemonitor.yaml")[1]["spec"]
    assert monitor["spec"] == written  # the schema knows all of its fields: it would drop the others
    namespaces = {item["metadata"]["namespace"] for item in (deployment, service, monitor)}
    assert len(namespaces) == 1

    [endpoint] = monitor["spec"]["endpoints"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [port] = [port for port in service["spec"]["ports"] if port["name"] == endpoint["port"]]
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    [number] = [item["containerPort"] for item in container["ports"] if item["name"] == port["targetPort"]]
    assert port["port"] == number
    comment = (EXAMPLES / "monitoring" / "servicemonitor.yaml").read_text()
    assert f"--metrics=http://0.0.0.0:{number}{endpoint['path']}" in comment
