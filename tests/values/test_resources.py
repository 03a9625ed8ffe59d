from __future__ import annotations

from typing import Any

import pytest

from kopf._values.resources import EVENTS, Resource

KEX = Resource("kopf.dev", "v1", "kopfexamples", kind="KopfExample", namespaced=True)
PODS = Resource("", "v1", "pods", namespaced=True)
NODES = Resource("", "v1", "nodes", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


@pytest.mark.parametrize(
    ("resource", "text", "api_version", "name"),
    [
        (KEX, "kopfexamples.v1.kopf.dev", "kopf.dev/v1", "kopfexamples.kopf.dev"),
        (PODS, "pods.v1", "v1", "pods"),
    ],
)
def test_names_of_resources(resource: Resource, text: str, api_version: str, name: str) -> None:
    assert repr(resource) == str(resource) == text
    assert resource.api_version == api_version
    assert resource.name == name


def test_the_identity_is_only_what_is_needed_to_address_it() -> None:
    same = Resource("kopf.dev", "v1", "kopfexamples", shortcuts=frozenset({"kex"}), preferred=False)
    assert same == KEX
    assert hash(same) == hash(KEX)
    assert Resource("kopf.dev", "v2", "kopfexamples") != KEX
    assert {KEX: 1}[same] == 1


def test_defaults() -> None:
    resource = Resource("kopf.dev", "v1", "kopfexamples")
    assert (resource.kind, resource.singular, resource.namespaced) == (None, None, None)
    assert resource.preferred
    assert resource.shortcuts == resource.categories == resource.subresources == resource.verbs == frozenset()


@pytest.mark.parametrize(
    ("resource", "kwargs", "url"),
    [
        (KEX, {}, "/apis/kopf.dev/v1/kopfexamples"),
        (KEX, {"namespace": "ns"}, "/apis/kopf.dev/v1/namespaces/ns/kopfexamples"),
        (KEX, {"namespace": "ns", "name": "x"}, "/apis/kopf.dev/v1/namespaces/ns/kopfexamples/x"),
        (
            KEX,
            {"namespace": "ns", "name": "x", "subresource": "status"},
            "/apis/kopf.dev/v1/namespaces/ns/kopfexamples/x/status",
        ),
        (PODS, {}, "/api/v1/pods"),
        (PODS, {"namespace": "ns"}, "/api/v1/namespaces/ns/pods"),
        (NODES, {}, "/api/v1/nodes"),
        (NODES, {"name": "x"}, "/api/v1/nodes/x"),
        (NODES, {"namespace": "ignored", "name": "x"}, "/api/v1/nodes/x"),
        (
            CRDS,
            {"name": "x", "subresource": "status"},
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x/status",
        ),
        (
            PODS,
            {"params": {"watch": "true", "labelSelector": "a=b,c"}},
            "/api/v1/pods?watch=true&labelSelector=a%3Db%2Cc",
        ),
        (PODS, {"params": {}}, "/api/v1/pods"),
        (PODS, {"server": "https://host:6443"}, "https://host:6443/api/v1/pods"),
        (PODS, {"server": "https://host/prefix/"}, "https://host/prefix/api/v1/pods"),
        (NODES, {"name": "strange/name?"}, "/api/v1/nodes/strange%2Fname%3F"),
        (EVENTS, {"namespace": "default"}, "/api/v1/namespaces/default/events"),
    ],
)
def test_urls(resource: Resource, kwargs: Any, url: str) -> None:
    assert resource.get_url(**kwargs) == url


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"subresource": "status"}, r"A subresource of kopfexamples\.v1\.kopf\.dev needs the name"),
        ({"name": "x"}, r"namespaced kopfexamples\.v1\.kopf\.dev needs its namespace"),
    ],
)
def test_impossible_urls(kwargs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KEX.get_url(**kwargs)
