"""Conversions are checked by random objects of all versions."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

import kopf
from kopf.testing import check_conversions
from kopf_cluster import LocalCluster

Obj = dict[str, Any]
NAME = "widgets.example.com"

SIZE_V1 = {"type": "string", "pattern": "^[0-9]+G$"}
V1BETA1 = {
    "size": {"type": "integer", "minimum": 0, "maximum": 5000},
    "note": {"type": "string", "maxLength": 20},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
    "more": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
}


def make_definition(**versions: Obj) -> Obj:
    def make_version(name: str, spec: Obj) -> Obj:
        properties = {"spec": {"type": "object", "properties": spec}}
        schema = {"type": "object", "properties": properties, "required": ["spec"]}
        return {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [make_version(name, spec) for name, spec in versions.items()],
        },
    }


DEFINITION = make_definition(v1beta1=V1BETA1, v1={**V1BETA1, "size": {"type": "string"}, "comment": V1BETA1["note"]})
del DEFINITION["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["note"]


def upgrade(obj: Obj) -> Obj:
    spec = obj.get("spec", {})
    if "size" in spec:
        spec["size"] = f"{spec['size']}G"
    if "note" in spec:
        spec["comment"] = spec.pop("note")
    return obj


async def downgrade(obj: Obj) -> Obj:
    spec = obj.get("spec", {})
    if "size" in spec:
        spec["size"] = int(spec["size"].removesuffix("G"))
    if "comment" in spec:
        spec["note"] = spec.pop("comment")
    return obj


def declare(up: Callable[..., Any] = upgrade, down: Callable[..., Any] = downgrade) -> None:
    kopf.convert(NAME, "v1beta1", "v1")(up)
    kopf.convert(NAME, "v1", "v1beta1")(down)


def check(**options: Any) -> str:
    with pytest.raises(AssertionError) as info:
        check_conversions(DEFINITION, **{"versions": ["v1beta1"], **options})
    return str(info.value)


def test_conversions_without_losses(registry: kopf.OperatorRegistry, tmp_path: pathlib.Path) -> None:
    declare()
    check_conversions(DEFINITION, versions=["v1beta1"])
    (tmp_path / "crd.yaml").write_text(yaml.safe_dump_all([{"kind": "Other"}, DEFINITION]))
    check_conversions(tmp_path / "crd.yaml", versions=["v1beta1"], examples=5)


async def test_it_can_be_checked_in_async_tests(registry: kopf.OperatorRegistry) -> None:
    declare()
    check_conversions(DEFINITION, versions=["v1beta1"], examples=5)


def test_the_smallest_lost_object_is_shown(registry: kopf.OperatorRegistry) -> None:
    def lose(obj: Obj) -> Obj:
        obj = upgrade(obj)
        if obj["spec"].get("comment", "").startswith(" "):
            obj["spec"]["comment"] = obj["spec"]["comment"].strip()
        if "y" in obj["spec"].get("tags", ()):
            obj["spec"]["tags"].remove("y")
        return obj

    declare(lose)
    text = check()
    assert text.startswith(f"{NAME}, from v1beta1 to v1 and back:\n  spec.tags: [")
    assert '"size"' not in text
    assert '"more"' not in text


def test_objects_that_are_not_accepted_in_the_other_version(registry: kopf.OperatorRegistry) -> None:
    declare(lambda obj: obj)
    assert "  spec.note: unknown in v1, so it is dropped" in check() or "  refused in v1: spec.size: " in check()


def test_ways_that_are_missing(registry: kopf.OperatorRegistry) -> None:
    kopf.convert(NAME, "v1beta1", "v1")(upgrade)
    assert f"There is no way from v1 to v1beta1 of {NAME}: declare @kopf.convert" in check()


def test_functions_that_fail(registry: kopf.OperatorRegistry) -> None:
    declare()
    text = check(versions=["v1"])  # any text can be a size there
    assert "The conversion of default/example from v1 to v1beta1 by downgrade() has failed: ValueError: " in text


def test_given_objects(registry: kopf.OperatorRegistry) -> None:
    declare()
    versions = {"v1beta1": V1BETA1, "v1": {"size": SIZE_V1, "comment": V1BETA1["note"]}}
    definition = make_definition(**versions)
    definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = ["size"]
    with pytest.raises(ValueError, match="No random object fits the schema of v1: give some in objects="):
        check_conversions(definition, versions=["v1"])
    metadata = {"name": "one", "namespace": "default"}
    obj = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": "5G"}}
    check_conversions(definition, versions=["v1"], objects=[obj])
    with pytest.raises(AssertionError, match="spec.size: '05G' has become '5G'"):
        check_conversions(definition, versions=["v1"], objects=[{**obj, "spec": {"size": "05G"}}])


def test_what_is_lost_can_be_kept_in_annotations(registry: kopf.OperatorRegistry) -> None:
    def down(obj: Obj) -> Obj:
        size = obj["spec"].pop("size", None)
        if size is not None:
            obj["metadata"].setdefault("annotations", {})["size"] = size
        if "comment" in obj["spec"]:
            obj["spec"]["note"] = obj["spec"].pop("comment")
        return obj

    def up(obj: Obj) -> Obj:
        if (size := obj["metadata"].get("annotations", {}).pop("size", None)) is not None:
            obj["spec"]["size"] = size
        if "note" in obj["spec"]:
            obj["spec"]["comment"] = obj["spec"].pop("note")
        return obj

    declare(up, down)
    check_conversions(DEFINITION, versions=["v1"])


def test_versions_that_are_models(registry: kopf.OperatorRegistry) -> None:
    @dataclasses.dataclass
    class OldSpec:
        size: int = 0

    @dataclasses.dataclass
    class Spec:
        size: str = "0G"

    class OldWidget(
        kopf.CustomResource[OldSpec, dict[str, Any]],
        group="example.com",
        version="v1beta1",
        storage=False,
        kind="Widget",
    ): ...

    class Widget(kopf.CustomResource[Spec, dict[str, Any]], group="example.com", version="v1"): ...

    kopf.convert(Widget, "v1beta1", "v1")(upgrade)
    kopf.convert(Widget, "v1", "v1beta1")(downgrade)
    check_conversions(Widget, versions=["v1beta1"])
    with pytest.raises(AssertionError, match="from v1 to v1beta1 and back"):
        check_conversions(OldWidget)


def test_random_objects_are_accepted_by_the_api() -> None:
    """And the same seed makes the same objects."""
    from kopf._handlers.converting import ConversionRoutes
    from kopf._testing.conversion_checks import Checker

    checker = Checker(DEFINITION, ConversionRoutes(NAME, []))
    made = [*checker.make_objects("v1beta1", 30, 1)]
    assert made == [*checker.make_objects("v1beta1", 30, 1)] != [*checker.make_objects("v1beta1", 30, 2)]
    with LocalCluster() as cluster:
        stored = copy.deepcopy(DEFINITION)
        for version in stored["spec"]["versions"]:
            version["storage"] = version["name"] == "v1beta1"  # otherwise, fields of this version only are dropped
        cluster.apply(stored)
        for number, obj in enumerate(made):
            created = cluster.create({**obj, "metadata": {"name": f"obj{number}"}})
            assert created["spec"] == obj["spec"]
