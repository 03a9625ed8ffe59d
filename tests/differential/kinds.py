"""The resources of the cluster that the cases deal with."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Kind:
    """A resource."""

    api: str
    kind: str
    plural: str
    is_namespaced: bool = True
    has_status: bool = False
    names: tuple[tuple[str, Any], ...] = ()

    @property
    def head(self) -> dict[str, str]:
        return {"apiVersion": self.api, "kind": self.kind}

    def get_path(self, namespace: str | None = None, name: str = "", sub: str = "") -> str:
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        middle = f"/namespaces/{namespace}" if self.is_namespaced and namespace is not None else ""
        return f"{root}{middle}/{self.plural}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def make_crd(self) -> dict[str, Any]:
        group, version = self.api.split("/")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced" if self.is_namespaced else "Cluster",
                "names": {"kind": self.kind, "plural": self.plural, "singular": self.kind.lower(), **dict(self.names)},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}} if self.has_status else {},
                    }
                ],
            },
        }


CUSTOM = {
    "kex": Kind(
        "kopf.dev/v1", "KopfExample", "kopfexamples", names=(("shortNames", ["kex"]), ("categories", ["examples"]))
    ),
    "sub": Kind("kopf.dev/v1", "KopfStatusExample", "kopfstatusexamples", has_status=True),
    "wide": Kind("kopf.dev/v1", "KopfWideExample", "kopfwideexamples", is_namespaced=False),
    "other": Kind("other.dev/v1", "KopfExample", "kopfexamples"),
    "child": Kind("other.dev/v1", "KopfChild", "kopfchildren", names=(("categories", ["examples"]),)),
    "peering": Kind("kopf.dev/v1", "KopfPeering", "kopfpeerings"),
    "cpeering": Kind("kopf.dev/v1", "ClusterKopfPeering", "clusterkopfpeerings", is_namespaced=False),
}
LATE = {"late": Kind("other.dev/v1", "KopfLate", "kopflates")}
"""Those which the cases define themselves."""
BUILTIN = {
    "configmap": Kind("v1", "ConfigMap", "configmaps"),
    "secret": Kind("v1", "Secret", "secrets"),
    "pod": Kind("v1", "Pod", "pods", has_status=True),
    "namespace": Kind("v1", "Namespace", "namespaces", is_namespaced=False),
    "event": Kind("v1", "Event", "events"),
    "validating": Kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        is_namespaced=False,
    ),
    "mutating": Kind(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        is_namespaced=False,
    ),
    "crd": Kind(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", is_namespaced=False
    ),
}
KINDS = CUSTOM | LATE | BUILTIN
DEFAULT = ("kex", "sub", "wide", "child")
"""Those which are always there; the others are there when a case speaks of them."""
