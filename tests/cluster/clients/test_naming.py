from __future__ import annotations

import pytest

from kopf_cluster import APIStatus
from kopf_cluster.builtin_kinds import read_kinds
from kopf_cluster.clients.operations import find_kind
from kopf_cluster.kinds.kind import Kind
from kopf_cluster.kinds.registry import Registry


@pytest.fixture(scope="module")
def registry() -> Registry:
    kexes = Kind("example.com", "v1", "Kex", "kexes", "kex", namespaced=True, short_names=("kx",), custom=True)
    pods = Kind("example.com", "v1", "Pod", "pods", "pod", namespaced=True, custom=True)
    return Registry([*read_kinds(), kexes, pods])


@pytest.mark.parametrize(
    ("text", "group", "version", "plural"),
    [
        *[(text, "", "v1", "pods") for text in ("pods", "pod", "po", "Pod", "PODS", "pods.v1.")],
        *[
            (text, "apps", "v1", "deployments")
            for text in (
                "deployments",
                "deployment",
                "deploy",
                "Deployment",
                "deployments.apps",
                "deploy.apps",
                "Deployment.v1.apps",
            )
        ],
        *[(text, "storage.k8s.io", "v1", "storageclasses") for text in ("sc", "sc.storage.k8s.io", "sc.storage")],
        *[(text, "example.com", "v1", "kexes") for text in ("kex", "kx", "kexes.example.com", "kexes.v1.example.com")],
        ("pods.example.com", "example.com", "v1", "pods"),
        ("events", "", "v1", "events"),
        ("events.events.k8s.io", "events.k8s.io", "v1", "events"),
        ("hpa", "autoscaling", "v2", "horizontalpodautoscalers"),
        ("hpa.v1.autoscaling", "autoscaling", "v1", "horizontalpodautoscalers"),
        ("crd", "apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ],
)
def test_kinds_are_found_by_any_name(registry: Registry, text: str, group: str, version: str, plural: str) -> None:
    kind = find_kind(registry, text)
    assert (kind.group, kind.version, kind.plural) == (group, version, plural)


@pytest.mark.parametrize("text", ["", "nosuch", "pods.apps", "deployments.v7.apps", "pods.v1.apps"])
def test_others_are_refused_as_by_kubectl(registry: Registry, text: str) -> None:
    with pytest.raises(APIStatus, match="the server doesn't have a resource type") as refused:
        find_kind(registry, text)
    assert (refused.value.code, refused.value.reason) == (404, "NotFound")
