"""
What is odd in pods, but not wrong: clients are warned of it, as by a real server.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import Client, Obj
from tests.cluster.writes.test_field_validation import warnings

CORE = "/api/v1/namespaces/default"
BAD_ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}, {"name": "A", "value": "2"}]
HIDDEN = 'env[2]: hides previous definition of "A", which may be dropped when using apply'


def make_spec(**container: Any) -> Obj:
    extra = container.pop("extra", {})
    return {"containers": [{"name": "main", "image": "main:1", **container}], **extra}


def make_pod(name: str = "one", **container: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": make_spec(**container)}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"env": BAD_ENV}, [f"spec.containers[0].{HIDDEN}"]),
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}, []),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)"}]},
            ['spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply'],
        ),
        (
            {
                "ports": [
                    {"containerPort": 80},
                    {"containerPort": 80, "name": "x"},
                    {"containerPort": 80, "protocol": "UDP"},
                ]
            },
            ["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"],
        ),
        (
            {"ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 80}]},
            ["spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"],
        ),
        (
            {"resources": {"limits": {"memory": "100m", "cpu": "100m"}, "requests": {"memory": "50m"}}},
            [
                'spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be '
                "an integer",
                'spec.containers[0].resources.requests[memory]: fractional byte value "50m" is invalid, must be '
                "an integer",
            ],
        ),
        (
            {"extra": {"initContainers": [{"name": "first", "image": "first", "env": BAD_ENV}]}},
            [f"spec.initContainers[0].{HIDDEN}"],
        ),
        (
            {"extra": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}},
            ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
        ),
        (
            {"extra": {"volumes": [{"name": "v", "gitRepo": {"repository": "x"}}]}},
            ["spec.volumes[0].gitRepo: deprecated in v1.11"],
        ),
        (
            {"extra": {"hostAliases": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]}},
            ['spec.hostAliases[1].ip: duplicate ip "10.0.0.1"'],
        ),
        (
            {"extra": {"imagePullSecrets": [{"name": "x"}, {"name": "x"}]}},
            ['spec.imagePullSecrets[1].name: duplicate name "x"'],
        ),
        ({}, []),
    ],
)
@pytest.mark.parametrize("validation", ["Warn", "Strict", "Ignore"])
async def test_what_is_odd_is_told(client: Client, container: Obj, expected: list[str], validation: str) -> None:
    reply = await client.call("POST", f"{CORE}/pods?fieldValidation={validation}", json=make_pod(**container))
    assert (reply.status, warnings(reply)) == (201, expected)


async def test_names_that_are_no_hostnames_are_told(client: Client) -> None:
    [warning] = warnings(await client.call("POST", f"{CORE}/pods", json=make_pod("one.two")))
    assert warning.startswith(
        "metadata.name: this is used in the Pod's hostname, which can result in surprising "
        "behavior; a DNS label is recommended: [a lowercase RFC 1123 label must consist of"
    )


@pytest.mark.parametrize(
    ("path", "kind", "prefix"),
    [
        ("/apis/apps/v1", "Deployment", "spec.template"),
        ("/apis/apps/v1", "DaemonSet", "spec.template"),
        ("/apis/apps/v1", "StatefulSet", "spec.template"),
        ("/apis/apps/v1", "ReplicaSet", "spec.template"),
        ("/api/v1", "ReplicationController", "spec.template"),
        ("/apis/batch/v1", "Job", "spec.template"),
        ("/apis/batch/v1", "CronJob", "spec.jobTemplate.spec.template"),
        ("/api/v1", "PodTemplate", "template"),
    ],
)
async def test_templates_are_looked_at_when_they_are_new(client: Client, path: str, kind: str, prefix: str) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": make_spec(env=BAD_ENV)}
    spec: Obj = {
        "template": template,
        "selector": labels if kind == "ReplicationController" else {"matchLabels": labels},
    }
    if kind.endswith("Job"):
        template["spec"]["restartPolicy"], spec = "Never", {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    body = {"metadata": {"name": "one"}, **({"template": template} if kind == "PodTemplate" else {"spec": spec})}
    place = f"{path}/namespaces/default/{kind.lower()}s"
    reply = await client.call("POST", place, json=body)
    assert (reply.status, warnings(reply)) == (201, [f"{prefix}.spec.containers[0].{HIDDEN}"])
    reply = await client.send_patch(f"{place}/one", {"metadata": {"labels": {"x": "y"}}})
    assert (reply.status, warnings(reply)) == (200, [])
