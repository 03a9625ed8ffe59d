"""Custom resources that are defined, changed, and removed in the middle of a test."""

from __future__ import annotations

from typing import Any

from kopf_cluster import LocalCluster
from tests.behaviour.objects import API

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def make_crd(
    kind: str,
    plural: str,
    *,
    group: str = "kopf.dev",
    status: bool = False,
    versions: tuple[str, ...] = ("v1",),
    scope: str = "Namespaced",
    **names: Any,
) -> dict[str, Any]:
    """Define a resource with or without the status subresource; the names are short names & categories."""
    rest = {
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}} if status else {},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "scope": scope,
            "group": group,
            "names": {"plural": plural, "kind": kind, "singular": kind.lower(), **names},
            "versions": [{"name": name, "served": True, "storage": name == versions[0], **rest} for name in versions],
        },
    }


def define(cluster: LocalCluster, plural: str, *, kind: str | None = None, **options: Any) -> None:
    """Define the resource, or change its definition."""
    cluster.apply(make_crd(kind or plural.capitalize().removesuffix("s"), plural, **options))


def define_namespaces(cluster: LocalCluster, *names: str) -> None:
    for name in names:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def undefine(api: API, plural: str, *, group: str = "kopf.dev") -> None:
    """Remove the resource with all its objects."""
    await api.request("DELETE", f"{CRDS}/{plural}.{group}")


async def create(
    api: API, plural: str, name: str, *, group: str = "kopf.dev", version: str = "v1", **content: Any
) -> None:
    """Create an object of any resource."""
    metadata = {"name": name, **content.pop("metadata", {})}
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    listing = await api.request("GET", f"{root}/namespaces/default/{plural}")
    head = {"apiVersion": listing["apiVersion"], "kind": listing["kind"].removesuffix("List")}
    await api.request("POST", f"{root}/namespaces/default/{plural}", {**head, "metadata": metadata, **content})


async def create_in(api: API, namespace: str, name: str = "obj", **metadata: Any) -> None:
    """Create an object in the namespace."""
    obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name, **metadata}}
    path = f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfexamples"
    await api.request("POST", path, {**obj, "spec": {"field": "value"}})
