from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.kinds import structures
from kopf_cluster.kinds.builtin_pruning import prune
from kopf_cluster.kinds.structures import validate
from tests.cluster.kinds.strategies import KINDS, spoiled


def errors(definition: str, obj: dict[str, Any]) -> list[str]:
    return [str(error) for error in validate(obj, structures.of_definition(f"io.k8s.api.{definition}"))]


@pytest.mark.parametrize(
    ("definition", "obj", "expected"),
    [
        ("core.v1.Pod", {}, ["spec.containers: Required value"]),
        ("core.v1.Pod", {"spec": {"containers": []}}, ["spec.containers: Required value"]),
        ("core.v1.Pod", {"spec": {"containers": [{"image": "x"}]}}, ["spec.containers[0].name: Required value"]),
        ("core.v1.Pod", {"spec": {"containers": [{"name": "x"}]}}, []),
        (
            "core.v1.Pod",
            {"spec": {"containers": [{"name": "x", "ports": [{"containerPort": 1, "protocol": "IP"}]}]}},
            ['spec.containers[0].ports[0].protocol: Unsupported value: "IP": supported values: "SCTP", "TCP", "UDP"'],
        ),
        (
            "apps.v1.Deployment",
            {"spec": {}},
            ["spec.selector: Required value", "spec.template.spec.containers: Required value"],
        ),
        ("rbac.v1.RoleBinding", {}, ["roleRef.kind: Required value", "roleRef.name: Required value"]),
        (
            "rbac.v1.Role",
            {"rules": [{"resources": ["pods"]}]},
            ["rules[0].verbs: Required value: verbs must contain at least one value"],
        ),
        ("rbac.v1.Role", {}, []),
        (
            "storage.v1.StorageClass",
            {"provisioner": "x", "reclaimPolicy": "Keep"},
            ['reclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Retain"'],
        ),
        ("core.v1.Service", {"spec": {"type": ""}}, []),
        ("core.v1.ConfigMap", {}, []),
        ("discovery.v1.EndpointSlice", {"addressType": "IPv4"}, []),
        (
            "apps.v1.Deployment",
            {
                "status": {"conditions": [{}]},
                "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "x"}]}}},
            },
            [],
        ),
    ],
)
def test_what_is_refused(definition: str, obj: dict[str, Any], expected: list[str]) -> None:
    assert errors(definition, obj) == expected


def test_reasons_are_for_machines() -> None:
    structure = structures.of_definition("io.k8s.api.core.v1.Pod")
    found = list(validate({"spec": {"restartPolicy": "Rarely"}}, structure))
    assert {(error.field, error.reason) for error in found} == {
        ("spec.containers", "FieldValueRequired"),
        ("spec.restartPolicy", "FieldValueNotSupported"),
    }


@given(st.data())
def test_pruning_changes_nothing_for_the_validation(data: st.DataObject) -> None:
    structure = structures.of_definition(data.draw(st.sampled_from(KINDS)))
    dirty, clean, _ = data.draw(spoiled(structure))
    kept, _ = prune(dirty, structure)
    assert list(validate(kept, structure)) == list(validate(clean, structure))
