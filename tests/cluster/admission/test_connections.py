"""
Connections to containers: webhooks are asked about them, even if there is nothing to connect to.
"""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.admission.test_admission import configure, webhook
from tests.cluster.conftest import Client, Obj
from tests.cluster.webhooks import Hooks, add, allow, deny, patch

POD = "/api/v1/namespaces/default/pods/one"


def rule(resource: str) -> Obj:
    return {"operations": ["CONNECT"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}


@pytest.mark.parametrize(
    ("method", "path", "kind", "options"),
    [
        (
            "POST",
            "exec?command=ls&command=-l&stdin=true&container=main",
            "PodExecOptions",
            {"command": ["ls", "-l"], "stdin": True, "container": "main"},
        ),
        ("GET", "attach?stdin=1&tty=0", "PodAttachOptions", {"stdin": True, "tty": False}),
        ("POST", "portforward?ports=80", "PodPortForwardOptions", {"ports": [80]}),
        ("PUT", "proxy/a/b", "PodProxyOptions", {"path": "/a/b"}),
    ],
)
async def test_connections_are_reviewed(
    cluster: LocalCluster,
    client: Client,
    hooks: Hooks,
    method: str,
    path: str,
    kind: str,
    options: Any,
) -> None:
    name = path.partition("?")[0].partition("/")[0]
    configure(cluster, webhook(hooks.on("/", allow), rules=[rule(f"pods/{name}")]))
    assert (await client.call(method, f"{POD}/{path}")).status == 501
    (request,) = hooks.requests()
    assert (request["operation"], request["options"], request["subResource"]) == ("CONNECT", None, name)
    assert (request["namespace"], request["name"]) == ("default", "one")
    assert request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": kind}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert request["object"] == {"kind": kind, "apiVersion": "v1", **options}
    assert request["oldObject"] is None

    hooks.on("/", deny("nobody enters"))
    refused = await client.call(method, f"{POD}/{path}")
    assert (refused.status, refused.body["message"]) == (
        400,
        'admission webhook "x.example.com" denied the request: nobody enters',
    )


async def test_mutating_webhooks_see_connections_too(cluster: LocalCluster, client: Client, hooks: Hooks) -> None:
    configure(cluster, webhook(hooks.on("/", patch(add("/container", "other"))), rules=[rule("*/*")]), mutating=True)
    configure(cluster, webhook(hooks.on("/last", allow), rules=[rule("pods/*")]), name="last")
    assert (await client.call("POST", f"{POD}/exec?command=ls")).status == 501
    assert hooks.requests("/last")[0]["object"]["container"] == "other"


async def test_logs_and_unknown_methods_are_no_connections(
    cluster: LocalCluster,
    client: Client,
    hooks: Hooks,
) -> None:
    configure(cluster, webhook(hooks.on("/", deny("never")), rules=[rule("*/*")]))
    assert (await client.call("GET", f"{POD}/log")).status == 501
    assert (await client.call("PATCH", f"{POD}/exec")).status in (405, 501)
    assert not hooks.reviews
