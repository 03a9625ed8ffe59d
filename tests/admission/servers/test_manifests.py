"""The manifests of the documentation: what is written there, works."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
from typing import Any

import pytest
import yaml

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import Refused, connect
from tests.behaviour.running import Operator
from tests.patience import PATIENCE
from tests.ports import find_free_port

pytestmark = pytest.mark.fastforward("exit")

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "webhook-servers.md"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/my-operator.example.com"
OBJECTS = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"


def read_manifests() -> list[dict[str, Any]]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return [manifest for block in blocks for manifest in yaml.safe_load_all(block)]


@pytest.mark.parametrize("created", ["by the operator", "in advance"])
async def test_the_operator_works_with_the_documented_permissions(created: str) -> None:
    async with LocalCluster(authorization="rbac") as cluster, connect(cluster) as api:
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        for manifest in read_manifests():
            if created == "in advance" and manifest["kind"] == "Role":
                del manifest["rules"][0]  # the creation of secrets
            cluster.apply(manifest)
        if created == "in advance":
            meta = {"namespace": "default", "name": "my-operator-webhook-certs"}
            data = {"tls.crt": "", "tls.key": ""}
            cluster.apply(
                {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": data}
            )
        permit_discovery(cluster)
        token = cluster.create_token("default", "my-operator")
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        def login(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=cluster.url, token=token, ca_data=cluster.ca_data)

        @kopf.on.validate("kopfexamples", registry=registry)
        def refuse(**_: Any) -> None:
            raise kopf.AdmissionError("Never!", code=403)

        port = find_free_port()
        cluster.register_service("default", "my-operator", "127.0.0.1", port)
        operator = Operator(cluster, registry)

        def configure(settings: kopf.OperatorSettings) -> None:
            settings.peering.standalone = True
            settings.admission.managed = "my-operator.example.com"
            settings.admission.server = kopf.WebhookServiceServer(
                "my-operator", namespace="default", addr="127.0.0.1", port=port
            )

        operator.configure = configure
        await operator.launch()
        try:
            async with asyncio.timeout(PATIENCE):
                while not await has_webhooks(api):
                    if not operator.is_running:
                        await operator.wait()
                    await asyncio.sleep(0.02)
            with pytest.raises(Refused, match="Never!"):
                await api.request(
                    "POST", OBJECTS, {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj"}}
                )
        finally:
            await operator.stop()


def permit_discovery(cluster: LocalCluster) -> None:
    """What every operator needs to find the handled resources, besides webhooks."""
    meta = {"name": "my-operator"}
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": [
                {
                    "apiGroups": ["apiextensions.k8s.io"],
                    "resources": ["customresourcedefinitions"],
                    "verbs": ["list", "watch"],
                },
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
            ],
        }
    )
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "my-operator"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "my-operator"}],
        }
    )


async def has_webhooks(api: Any) -> bool:
    with contextlib.suppress(Refused):
        return bool((await api.request("GET", CONFIGURATION)).get("webhooks"))
    return False


def test_the_service_leads_to_the_server() -> None:
    manifests = {manifest["kind"]: manifest for manifest in read_manifests()}
    container = manifests["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert manifests["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["containerPort"] == 9443
    assert manifests["Service"]["spec"]["selector"] == manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
