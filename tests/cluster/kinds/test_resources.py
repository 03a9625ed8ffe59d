"""
The data of built-in resources against what is known of Kubernetes from its documentation and `kubectl api-resources`.
"""

from __future__ import annotations

import importlib.resources
import subprocess
import sys

import pytest

from kopf_cluster.kinds import resources, structures
from kopf_cluster.kinds.resources import Resource
from tests.cluster.kinds import strategies
from tests.patience import PATIENCE

ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def find(plural: str, group: str = "", version: str = "v1") -> Resource:
    [found] = [
        one for one in resources.read_resources() if (one.group, one.version, one.plural) == (group, version, plural)
    ]
    return found


def test_of_which_version_the_data_are() -> None:
    assert resources.kubernetes_version().startswith("1.36.")


@pytest.mark.parametrize(
    ("plural", "group", "short_names", "categories", "namespaced"),
    [
        ("pods", "", ("po",), ("all",), True),
        ("namespaces", "", ("ns",), (), False),
        ("componentstatuses", "", ("cs",), (), False),
        ("endpoints", "", ("ep",), (), True),
        ("secrets", "", (), (), True),
        ("deployments", "apps", ("deploy",), ("all",), True),
        ("controllerrevisions", "apps", (), (), True),
        ("cronjobs", "batch", ("cj",), ("all",), True),
        ("ingresses", "networking.k8s.io", ("ing",), (), True),
        ("ingressclasses", "networking.k8s.io", (), (), False),
        ("clusterroles", "rbac.authorization.k8s.io", (), (), False),
        ("storageclasses", "storage.k8s.io", ("sc",), (), False),
        ("certificatesigningrequests", "certificates.k8s.io", ("csr",), (), False),
        ("customresourcedefinitions", "apiextensions.k8s.io", ("crd", "crds"), ("api-extensions",), False),
        ("mutatingwebhookconfigurations", "admissionregistration.k8s.io", (), ("api-extensions",), False),
        ("apiservices", "apiregistration.k8s.io", (), ("api-extensions",), False),
        ("events", "events.k8s.io", ("ev",), (), True),
    ],
)
def test_names_and_scopes(
    plural: str,
    group: str,
    short_names: tuple[str, ...],
    categories: tuple[str, ...],
    namespaced: bool,
) -> None:
    found = find(plural, group)
    assert (found.short_names, found.categories, found.namespaced) == (short_names, categories, namespaced)


@pytest.mark.parametrize(
    ("plural", "group", "verbs"),
    [
        ("deployments", "apps", ALL),
        ("services", "", ALL),
        ("namespaces", "", ("create", "delete", "get", "list", "patch", "update", "watch")),
        ("componentstatuses", "", ("get", "list")),
        ("bindings", "", ("create",)),
        ("tokenreviews", "authentication.k8s.io", ("create",)),
        ("selfsubjectaccessreviews", "authorization.k8s.io", ("create",)),
        ("localsubjectaccessreviews", "authorization.k8s.io", ("create",)),
    ],
)
def test_verbs(plural: str, group: str, verbs: tuple[str, ...]) -> None:
    assert find(plural, group).verbs == verbs


@pytest.mark.parametrize(
    ("plural", "group", "subresources"),
    [
        (
            "pods",
            "",
            [
                "attach",
                "binding",
                "ephemeralcontainers",
                "eviction",
                "exec",
                "log",
                "portforward",
                "proxy",
                "resize",
                "status",
            ],
        ),
        ("namespaces", "", ["finalize", "status"]),
        ("nodes", "", ["proxy", "status"]),
        ("services", "", ["proxy", "status"]),
        ("serviceaccounts", "", ["token"]),
        ("configmaps", "", []),
        ("deployments", "apps", ["scale", "status"]),
        ("daemonsets", "apps", ["status"]),
        ("replicationcontrollers", "", ["scale", "status"]),
        ("certificatesigningrequests", "certificates.k8s.io", ["approval", "status"]),
    ],
)
def test_subresources(plural: str, group: str, subresources: list[str]) -> None:
    assert list(find(plural, group).subresources) == subresources


@pytest.mark.parametrize(
    ("plural", "group", "name", "kind", "verbs"),
    [
        ("deployments", "apps", "scale", ("autoscaling", "v1", "Scale"), ("get", "patch", "update")),
        ("deployments", "apps", "status", ("apps", "v1", "Deployment"), ("get", "patch", "update")),
        ("pods", "", "eviction", ("policy", "v1", "Eviction"), ("create",)),
        ("pods", "", "exec", ("", "v1", "PodExecOptions"), ("create", "get")),
        ("serviceaccounts", "", "token", ("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
        ("namespaces", "", "finalize", ("", "v1", "Namespace"), ("update",)),
    ],
)
def test_kinds_and_verbs_of_subresources(
    plural: str,
    group: str,
    name: str,
    kind: tuple[str, str, str],
    verbs: tuple[str, ...],
) -> None:
    found = find(plural, group).subresources[name]
    assert ((found.group, found.version, found.kind), found.verbs) == (kind, verbs)


def test_versions_and_groups_are_in_the_order_of_the_server() -> None:
    listed = resources.read_resources()
    groups = list(dict.fromkeys(one.group for one in listed))
    assert groups[:4] == ["", "apiregistration.k8s.io", "apps", "events.k8s.io"]
    core = [one.plural for one in listed if one.group == ""]
    assert core == sorted(core)


def test_stable_resources_are_told_from_previews() -> None:
    stable = [one for one in resources.read_resources() if not one.is_preview]
    assert {one.version for one in stable} == {"v1", "v2"}
    assert [one.plural for one in stable if one.group == "resource.k8s.io"] == [
        "deviceclasses",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourceslices",
    ]
    assert find("ipaddresses", "networking.k8s.io", "v1beta1").is_preview


def test_every_resource_has_a_structure_of_its_own_kind() -> None:
    for resource in resources.read_resources():
        structure = structures.of_definition(resource.definition)
        assert structure.shape == "object"
        assert structure.go_type == f"{resource.version}.{resource.kind}"
        assert {"apiVersion", "kind"} <= structure.fields.keys()


def test_every_resource_has_unique_names_in_its_version() -> None:
    for field in ("plural", "kind"):
        keys = [(one.group, one.version, getattr(one, field)) for one in resources.read_resources()]
        assert len(keys) == len(set(keys))


def test_selectable_fields_exist() -> None:
    for resource in resources.read_resources():
        structure = structures.of_definition(resource.definition)
        for field in resource.fields:
            if (resource.plural, field) != ("jobs", "status.successful"):  # the only one that is not a field
                strategies.find(structure, *field.split("."))


def test_the_data_are_small_and_loaded_only_when_needed() -> None:
    folder = importlib.resources.files("kopf_cluster.kinds").joinpath("data")
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 600 * 1024
    code = """if True:
        from kopf_cluster import builtin_kinds
        from kopf_cluster.kinds import structures
        assert len(list(builtin_kinds.read_kinds())) > 60
        assert structures._definitions.cache_info().currsize == 0
        structures.of_definition("io.k8s.api.core.v1.Pod")
        assert structures._definitions.cache_info().currsize == 1
        assert structures.read_descriptions.cache_info().currsize == 0
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
