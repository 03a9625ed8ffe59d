from __future__ import annotations

import concurrent.futures

import pytest

from kopf_cluster.kinds import resources, structures
from kopf_cluster.kinds.structures import Structure
from tests.cluster.kinds import strategies

POD = "io.k8s.api.core.v1.Pod"


def find(path: str, definition: str = POD) -> Structure:
    return strategies.find(structures.of_definition(definition), *path.split("."))


@pytest.mark.parametrize(
    ("definition", "path", "merge_key", "map_keys"),
    [
        (POD, "spec.containers", "name", ("name",)),
        (POD, "spec.initContainers", "name", ("name",)),
        (POD, "spec.volumes", "name", ("name",)),
        (POD, "spec.containers.[].env", "name", ("name",)),
        (POD, "spec.containers.[].ports", "containerPort", ("containerPort", "protocol")),
        (POD, "spec.containers.[].volumeMounts", "mountPath", ("mountPath",)),
        (POD, "spec.imagePullSecrets", "name", ("name",)),
        (POD, "spec.hostAliases", "ip", ("ip",)),
        (POD, "status.conditions", "type", ("type",)),
        (POD, "metadata.ownerReferences", "uid", ("uid",)),
        ("io.k8s.api.core.v1.Service", "spec.ports", "port", ("port", "protocol")),
        ("io.k8s.api.core.v1.Service", "status.conditions", "type", ("type",)),
        ("io.k8s.api.apps.v1.Deployment", "spec.template.spec.containers", "name", ("name",)),
        ("io.k8s.api.apps.v1.Deployment", "status.conditions", "type", ("type",)),
        ("io.k8s.api.core.v1.ServiceAccount", "secrets", "name", ("name",)),
        ("io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration", "webhooks", "name", ("name",)),
    ],
)
def test_lists_that_are_merged(definition: str, path: str, merge_key: str, map_keys: tuple[str, ...]) -> None:
    found = find(path, definition)
    assert (found.shape, found.list_type, found.map_keys) == ("array", "map", map_keys)
    assert (found.merge_key, "merge" in found.patch_strategies) == (merge_key, True)


@pytest.mark.parametrize(
    ("path", "list_type"),
    [
        ("metadata.finalizers", "set"),
        ("spec.containers.[].command", "atomic"),
        ("spec.tolerations", "atomic"),
    ],
)
def test_lists_of_other_types(path: str, list_type: str) -> None:
    assert find(path).list_type == list_type


def test_strategies_of_patches() -> None:
    assert find("spec.volumes").patch_strategies == ("merge", "retainKeys")
    assert find("metadata.finalizers").patch_strategies == ("merge",)
    assert find("spec.strategy", "io.k8s.api.apps.v1.Deployment").patch_strategies == ("retainKeys",)
    assert find("spec.containers.[].command").patch_strategies == ()


def test_maps_that_are_replaced_as_a_whole() -> None:
    assert find("spec.selector", "io.k8s.api.apps.v1.Deployment").map_type == "atomic"
    assert find("spec.nodeSelector").map_type == "atomic"
    assert find("metadata.labels").map_type == ""


def test_types_are_named_as_in_go() -> None:
    assert find("spec").go_type == "v1.PodSpec"
    assert find("spec.containers").go_type == "[]v1.Container"
    assert find("metadata.labels").go_type == "map[string]string"
    assert find("spec.priority").go_type == "int32"
    assert find("spec.terminationGracePeriodSeconds").go_type == "int64"


def test_special_shapes() -> None:
    assert find("spec.containers.[].resources.limits.[]").shape == "quantity"
    assert find("spec.containers.[].livenessProbe.httpGet.port").shape == "int-or-string"
    assert find("data", "io.k8s.api.apps.v1.ControllerRevision").shape == "any"
    assert find("metadata.managedFields.[].fieldsV1").shape == "any"
    assert find("metadata.creationTimestamp").format == "date-time"
    assert find("data.[]", "io.k8s.api.core.v1.Secret").format == "byte"


def test_unknown_names_are_told() -> None:
    with pytest.raises(KeyError, match="NoSuchKind"):
        structures.of_definition("io.k8s.api.core.v1.NoSuchKind")


def test_what_is_shared_is_compiled_once() -> None:
    assert structures.of_definition(POD) is structures.of_definition(POD)
    assert find("spec") is find("spec.template.spec", "io.k8s.api.apps.v1.Deployment")


def test_structures_that_contain_themselves() -> None:
    schema = find(
        "spec.versions.[].schema.openAPIV3Schema",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    )
    assert strategies.find(schema, "properties", "[]") is schema
    assert strategies.find(schema, "default").shape == "any"


def test_lists_are_known_by_fields_that_exist() -> None:
    for resource in resources.read_resources():
        for structure in strategies.walk(structures.of_definition(resource.definition)):
            for key in (*structure.map_keys, *([structure.merge_key] if structure.merge_key else [])):
                strategies.find(structure, "[]", key)
            assert structure.list_type != "map" or structure.map_keys
            assert set(structure.required) <= structure.fields.keys()


def test_they_are_seen_only_when_they_are_complete_by_clusters_in_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(structures, "_COMPILED", {})
    read_node, seen = structures.read_node, list[concurrent.futures.Future[set[str]]]()

    def look() -> set[str]:
        return {*structures.of_definition(POD).fields}

    def read_in_the_middle(name: str) -> structures.Node:
        if name != POD and not seen:
            seen.append(pool.submit(look))
            concurrent.futures.wait(seen, timeout=0.1)  # it would see what is there by now
        return read_node(name)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        monkeypatch.setattr(structures, "read_node", read_in_the_middle)
        fields = look()
    assert "spec" in fields
    assert seen[0].result() == fields
