"""
Requests for certificates: the server tells who asks, and nobody else can.
"""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Client, make_request

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def make_object(**spec: Any) -> Any:
    return {
        "metadata": {"name": "one"},
        "spec": {"request": make_request(), "signerName": "example.com/x", "usages": ["client auth"], **spec},
    }


async def test_the_requester_is_told_by_the_server(client: Client, cluster: LocalCluster) -> None:
    lie = {"username": "root", "uid": "0", "groups": ["system:masters"], "extra": {"scopes": ["all"]}}
    obj = await client.create(REQUESTS, make_object(**lie))
    assert obj["spec"]["username"] == "kubernetes-admin"
    assert obj["spec"]["groups"] == ["system:masters", "system:authenticated"]
    assert not {"uid", "extra"} & set(obj["spec"])


async def test_the_requester_can_be_impersonated(client: Client) -> None:
    headers = {
        "Impersonate-User": "jane",
        "Impersonate-Uid": "u-1",
        "Impersonate-Group": "devs",
        "Impersonate-Extra-Scopes": "view",
    }
    reply = await client.call("POST", REQUESTS, json=make_object(username="root"), headers=headers, expected=201)
    spec = reply.body["spec"]
    assert (spec["username"], spec["uid"], spec["groups"], spec["extra"]) == (
        "jane",
        "u-1",
        ["devs", "system:authenticated"],
        {"scopes": ["view"]},
    )


async def test_requests_are_never_changed(client: Client) -> None:
    old = await client.create(REQUESTS, make_object())
    new = await client.patch(f"{REQUESTS}/one", {"spec": {"username": "root", "signerName": "example.com/y"}})
    assert new == old


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"request": "eA=="}, ['spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST']),
        ({"usages": []}, ["spec.usages: Required value"]),
        ({"usages": ["client auth", "client auth"]}, ['spec.usages[1]: Duplicate value: "client auth"']),
        (
            {"signerName": "x", "expirationSeconds": 5},
            [
                'spec.signerName: Invalid value: "x": must be a fully qualified domain and path of the form '
                "'example.com/signer-name'",
                "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 "
                "minutes)",
            ],
        ),
    ],
)
async def test_wrong_requests_are_refused(client: Client, spec: Any, expected: list[str]) -> None:
    reply = await client.call("POST", REQUESTS, json=make_object(**spec), expected=422)
    assert [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]] == expected
