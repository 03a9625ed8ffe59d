from __future__ import annotations

import json
import re

import pytest

from kopf_cluster.kinds import resources
from kopf_cluster.kinds.documents import Dialect, describe

POD = "io.k8s.api.core.v1.Pod"
EVERYTHING = [resource.definition for resource in resources.read_resources()]


@pytest.mark.parametrize(("dialect", "prefix"), [("v2", "#/definitions/"), ("v3", "#/components/schemas/")])
def test_references_lead_to_what_is_there(dialect: Dialect, prefix: str) -> None:
    schemas = describe(EVERYTHING, dialect)
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(schemas)))
    assert references
    assert references <= {prefix + name for name in schemas}


def test_only_what_is_needed_is_described() -> None:
    assert "io.k8s.api.apps.v1.Deployment" not in describe([POD], "v3")
    assert "io.k8s.api.core.v1.Container" in describe([POD], "v3")


def test_kinds_are_named() -> None:
    assert describe([POD], "v3")[POD]["x-kubernetes-group-version-kind"] == [
        {"group": "", "version": "v1", "kind": "Pod"}
    ]


@pytest.mark.parametrize("dialect", ["v2", "v3"])
def test_lists_tell_how_they_are_merged(dialect: Dialect) -> None:
    containers = describe([POD], dialect)["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["type"] == "array"
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"


def test_descriptions_are_for_people() -> None:
    schemas = describe([POD], "v3")
    assert schemas[POD]["description"].startswith("Pod is a collection of containers")
    assert schemas[POD]["properties"]["spec"]["description"].startswith("Specification of the desired behavior")
    assert schemas["io.k8s.api.core.v1.PodSpec"]["required"] == ["containers"]


def test_special_types_in_both_dialects() -> None:
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    either = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    old, new = describe([POD], "v2"), describe([POD], "v3")
    assert old[quantity]["type"] == "string"
    assert new[quantity]["oneOf"] == [{"type": "string"}, {"type": "number"}]
    assert (old[either]["type"], old[either]["format"]) == ("string", "int-or-string")
    assert new[either]["format"] == "int-or-string"
    assert old["io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"]["type"] == "object"


@pytest.mark.parametrize("dialect", ["v2", "v3"])
def test_what_can_be_anything_has_no_type(dialect: Dialect) -> None:
    anything = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON"
    assert "type" not in describe([anything], dialect)[anything]
