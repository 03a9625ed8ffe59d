"""
The token of the service account in pods, as admission of a real server adds it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Obj

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
OWN = {"name": "own", "mountPath": PATH}
BARE = {"name": "main", "image": "main"}


@pytest.fixture
async def cluster(shared_certificates: None) -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        await cluster.aio.wait_for("serviceaccount", "default")
        yield cluster


def make_pod(**spec: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": [BARE], **spec}}


async def test_pods_mount_the_token_of_their_account(cluster: LocalCluster) -> None:
    spec = cluster.create(make_pod(initContainers=[{"name": "first", "image": "first"}]))["spec"]
    [volume] = spec["volumes"]
    assert re.fullmatch("kube-api-access-[a-z0-9]{5}", volume["name"])
    assert volume["projected"] == {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    }
    for container in spec["containers"] + spec["initContainers"]:
        assert container["volumeMounts"] == [{"name": volume["name"], "readOnly": True, "mountPath": PATH}]
    changed = cluster.patch("pod", "one", {"metadata": {"labels": {"a": "b"}}})
    assert changed["spec"] == spec


@pytest.mark.parametrize(
    ("of_account", "of_pod", "is_mounted"),
    [
        (None, False, False),
        (False, None, False),
        (False, True, True),
        (True, False, False),
        (True, None, True),
    ],
)
async def test_it_can_be_declined(
    cluster: LocalCluster,
    of_account: bool | None,
    of_pod: bool | None,
    is_mounted: bool,
) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "mine"},
            "automountServiceAccountToken": of_account,
        }
    )
    spec = cluster.create(make_pod(serviceAccountName="mine", automountServiceAccountToken=of_pod))["spec"]
    assert ("volumes" in spec, "volumeMounts" in spec["containers"][0]) == (is_mounted, is_mounted)


async def test_what_containers_mount_there_themselves_stays(cluster: LocalCluster) -> None:
    own = {**BARE, "volumeMounts": [OWN]}
    volumes = [{"name": "own", "emptyDir": {}}]
    spec = cluster.create(make_pod(containers=[own], volumes=volumes))["spec"]
    assert (spec["volumes"], spec["containers"][0]["volumeMounts"]) == (volumes, [OWN])
    mixed = make_pod(containers=[own, {**BARE, "name": "other"}], volumes=volumes)
    spec = cluster.create({**mixed, "metadata": {"name": "two"}})["spec"]
    assert len(spec["volumes"]) == 2
    assert [len(container["volumeMounts"]) for container in spec["containers"]] == [1, 1]


async def test_copied_pods_go_on_with_their_volume(cluster: LocalCluster) -> None:
    spec = cluster.create(make_pod())["spec"]
    containers = [*spec["containers"], {**BARE, "name": "debugger"}]
    copy = cluster.create({**make_pod(), "metadata": {"name": "copy"}, "spec": {**spec, "containers": containers}})
    assert copy["spec"]["volumes"] == spec["volumes"]
    assert [item["volumeMounts"] for item in copy["spec"]["containers"]] == [spec["containers"][0]["volumeMounts"]] * 2


async def test_pods_of_unknown_accounts_have_none(cluster: LocalCluster) -> None:
    assert "volumes" not in cluster.create(make_pod(serviceAccountName="absent"))["spec"]


async def test_templates_have_none(cluster: LocalCluster) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [BARE]}},
        },
    }
    assert "volumes" not in cluster.create(deployment)["spec"]["template"]["spec"]
