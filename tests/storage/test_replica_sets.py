"""
ReplicaSets of Deployments: the annotations of a Deployment are copied to them, and are not to be taken for their own.

The names of their own ones are marked. The names here are those that the original framework was seen to write.
"""

from __future__ import annotations

from typing import Any

import pytest

import kopf

PREFIX = "kopf.zalando.org"
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}
LONG = "a-very-long-handler-id-that-goes-beyond-the-limit-of-sixty-three-characters/with-slash"


def make_body(kind: str = "ReplicaSet", *owners: Any, **annotations: str) -> kopf.Body:
    metadata = {
        "name": "x",
        "ownerReferences": [*owners] or [OWNER],
        "annotations": {f"{PREFIX}/{name.replace('_', '-')}": value for name, value in annotations.items()},
    }
    return kopf.Body({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"a": 1}})


@pytest.mark.parametrize(
    ("kind", "owner", "is_marked"),
    [
        ("ReplicaSet", OWNER, True),
        ("ReplicaSet", {**OWNER, "controller": False}, True),
        ("ReplicaSet", {**OWNER, "apiVersion": "extensions/v1beta1"}, True),
        ("ReplicaSet", {**OWNER, "kind": "Rollout"}, False),
        ("Deployment", OWNER, False),
        ("Pod", {**OWNER, "kind": "ReplicaSet"}, False),
    ],
)
def test_only_replica_sets_of_deployments_are_marked(kind: str, owner: dict[str, Any], is_marked: bool) -> None:
    body, patch, suffix = make_body(kind, owner), kopf.Patch(), "-ofDRS" if is_marked else ""
    kopf.AnnotationsProgressStorage().store(key=kopf.HandlerId("fn"), record={"retries": 1}, body=body, patch=patch)
    kopf.AnnotationsProgressStorage().touch(body=body, patch=patch, value="now")
    kopf.AnnotationsDiffBaseStorage().store(body=body, patch=patch, essence={"spec": {}})
    assert patch == {
        "metadata": {
            "annotations": {
                f"{PREFIX}/fn{suffix}": '{"retries":1}',
                f"{PREFIX}/touch-dummy{suffix}": "now",
                f"{PREFIX}/last-handled-configuration{suffix}": '{"spec":{}}\n',
            }
        }
    }


def test_those_without_owners_are_not_marked() -> None:
    body = kopf.Body({"kind": "ReplicaSet", "metadata": {"name": "x"}})
    assert kopf.AnnotationsProgressStorage().mark_key("fn", body=body) == "fn"


@pytest.mark.parametrize(
    ("prefix", "key", "names"),
    [
        (
            PREFIX,
            LONG,
            [
                "a-very-long-handler-id-that-goes-beyond-the-limit-of-six-M9zxEA",
                "a-very-long-handler-id-that-goes-beyond-tqpVxg",
            ],
        ),
        (
            "my-op.example.com",
            LONG,
            [
                "a-very-long-handler-id-that-goes-beyond-the-limit-of-six-M9zxEA",
                "a-very-long-handler-id-that-goes-beyon-tqpVxg",
            ],
        ),
        ("my-op.example.com", "x" * 57, ["x" * 57 + "-ofDRS", "x" * 38 + "-apS2bg"]),
        ("my-op.example.com", "a/b", ["a.b-ofDRS"]),
    ],
)
def test_the_mark_is_a_part_of_the_key(prefix: str, key: str, names: list[str]) -> None:
    keys = list(kopf.AnnotationsProgressStorage(prefix=prefix).make_keys(key, body=make_body()))
    assert keys == [f"{prefix}/{name}" for name in names]
    assert kopf.AnnotationsProgressStorage(prefix=prefix).mark_key(key, body=make_body()) == f"{key}-ofDRS"


def test_what_is_copied_from_the_deployment_is_not_read() -> None:
    body = make_body(fn='{"retries":1}', last_handled_configuration='{"spec":{"a":5}}')
    assert kopf.SmartProgressStorage().fetch(key=kopf.HandlerId("fn"), body=body) is None
    assert kopf.AnnotationsDiffBaseStorage().fetch(body=body) is None


def test_what_is_marked_is_read_and_removed() -> None:
    copied = {"fn": '{"retries":1}', "last_handled_configuration": '{"spec":{"a":5}}'}
    own = {"fn_ofDRS": '{"retries":2}', "last_handled_configuration_ofDRS": '{"spec":{"a":7}}'}
    body, patch, storage = make_body(**copied, **own), kopf.Patch(), kopf.SmartProgressStorage()
    assert storage.fetch(key=kopf.HandlerId("fn"), body=body) == {"retries": 2}
    assert kopf.AnnotationsDiffBaseStorage().fetch(body=body) == {"spec": {"a": 7}}
    storage.purge(key=kopf.HandlerId("fn"), body=body, patch=patch)
    assert patch == {"metadata": {"annotations": {f"{PREFIX}/fn-ofDRS": None}}}


@pytest.mark.parametrize(
    "storage",
    [
        kopf.AnnotationsDiffBaseStorage(prefix="op.example.com"),
        kopf.MultiDiffBaseStorage([kopf.AnnotationsDiffBaseStorage(prefix="op.example.com")]),
    ],
)
@pytest.mark.parametrize("kind", ["ReplicaSet", "Pod"])
def test_neither_is_essential(kind: str, storage: kopf.DiffBaseStorage) -> None:
    names = ("op.example.com/last-handled-configuration", "op.example.com/last-handled-configuration-ofDRS")
    metadata = {"name": "x", "ownerReferences": [OWNER], "annotations": dict.fromkeys(names, "{}")}
    assert storage.build(body=kopf.Body({"kind": kind, "metadata": metadata})) == {}
