from __future__ import annotations

from kopf._values.bodies import Body
from kopf._values.references import build_object_reference, build_owner_reference

BODY = Body(
    {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "name1", "namespace": "ns1", "uid": "uid1", "labels": {"a": "b"}},
        "spec": {"field": "value"},
    }
)


def test_object_reference() -> None:
    assert build_object_reference(BODY) == {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "namespace": "ns1",
        "name": "name1",
        "uid": "uid1",
    }


def test_owner_reference_has_no_namespace() -> None:
    assert build_owner_reference(BODY) == {
        "controller": True,
        "blockOwnerDeletion": True,
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "name": "name1",
        "uid": "uid1",
    }


def test_flags_of_owner_reference() -> None:
    ref = build_owner_reference(BODY, controller=False, block_owner_deletion=None)
    assert ref["controller"] is False
    assert "blockOwnerDeletion" not in ref


def test_absent_fields_are_absent_in_references() -> None:
    assert build_object_reference(Body({})) == {}
    assert build_object_reference(Body({"kind": "X", "metadata": {"name": "x", "namespace": None}})) == {
        "kind": "X",
        "name": "x",
    }
    assert build_owner_reference({"kind": "X", "metadata": None}) == {
        "controller": True,
        "blockOwnerDeletion": True,
        "kind": "X",
    }
