from __future__ import annotations

import json
import types
from typing import Any

import msgspec
import pytest

from kopf._controller.changes.detection import detect
from kopf._settings.settings import PersistenceSettings
from kopf._storage.diffbase import AnnotationsDiffBaseStorage, StatusDiffBaseStorage
from kopf._storage.progress import StatusProgressStorage
from kopf._storage.snapshots import Snapshots
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.reasons import Reason

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-11-21T00:00:00Z"}


def make(spec: Any = "same", *, handled: Any = None, annotations: Any = (), **stanzas: Any) -> Body:
    """Make an object with that spec & metadata, which was handled with some other content, if it was."""
    metadata = {"name": "x", **stanzas.pop("metadata", {})}
    annotations = {**dict(annotations), **({} if handled is None else {LAST_HANDLED: json.dumps(handled) + "\n"})}
    if annotations:
        metadata["annotations"] = annotations
    return Body(KubeObject.from_json(codec.encode({"metadata": metadata, "spec": spec, **stanzas})))


def find(
    body: Body, *, initial: bool = False, extra_fields: Any = (), persistence: PersistenceSettings | None = None
) -> Any:
    """Detect what has happened, with all states decoded."""
    persistence = persistence or PersistenceSettings()
    snapshots = Snapshots(persistence.diffbase_storage, persistence.progress_storage, extra_fields)
    detection = detect(body.object, snapshots, finalizer=persistence.finalizer, initial=initial)
    return types.SimpleNamespace(reason=detection.reason, **msgspec.structs.asdict(detection.get_change()))


@pytest.mark.parametrize(
    "stanzas",
    [
        {"status": {"done": True}},
        {"metadata": {"generation": 5, "resourceVersion": "123", "finalizers": ["x"], "ownerReferences": []}},
        {"annotations": {"kopf.zalando.org/fn": "{}", "kopf.zalando.org/touch-dummy": "x"}},
        {"annotations": {"other.com/kopf-managed": "yes", "other.com/fn": "{}"}},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
    ],
)
def test_traces_of_frameworks_and_of_the_system_are_not_essential(stanzas: Any) -> None:
    assert find(make(handled={"spec": "same"}, **stanzas)).reason is Reason.NOOP


def test_traces_of_frameworks_are_not_essential_even_if_they_were_stored_as_such() -> None:
    # An operator could store them before it has switched to another prefix or field.
    handled = {"spec": "same", "metadata": {"annotations": {"kopf.zalando.org/fn": "{}"}}}
    assert find(make(handled=handled)).reason is Reason.NOOP


def test_extra_fields_are_essential() -> None:
    body = make(handled={"spec": "same", "status": {"phase": "old"}}, status={"phase": "new", "other": 1})
    found = find(body, extra_fields=[("status", "phase")])
    assert found.reason is Reason.UPDATE
    assert found.diff == (("change", ("status", "phase"), "old", "new"),)


def test_the_progress_in_extra_fields_is_not_essential() -> None:
    persistence = PersistenceSettings(
        progress_storage=StatusProgressStorage(), diffbase_storage=StatusDiffBaseStorage()
    )
    handled = json.dumps({"spec": "same", "status": {"phase": "same"}})
    kopf = {"progress": {"fn": {"retries": 1}}, "last-handled-configuration": handled}
    body = make(status={"phase": "same", "kopf": kopf})
    assert find(body, extra_fields=[("status",)], persistence=persistence).reason is Reason.NOOP


def test_ignored_fields_are_not_essential() -> None:
    persistence = PersistenceSettings(diffbase_storage=AnnotationsDiffBaseStorage(ignored_fields=["spec.noisy"]))
    body = make({"field": 1, "noisy": 2}, handled={"spec": {"field": 1}})
    assert find(body, persistence=persistence).reason is Reason.NOOP


# --- deletion ---


@pytest.mark.parametrize("initial", [True, False])
@pytest.mark.parametrize("handled", [None, {"spec": "same"}, {"spec": "other"}])
@pytest.mark.parametrize(
    ("finalizers", "reason"),
    [
        ([FINALIZER], Reason.DELETE),
        (["other", FINALIZER], Reason.DELETE),
        (["other"], Reason.FREE),
        ([], Reason.FREE),
    ],
)
def test_deletions_are_handled_as_long_as_we_block_them(
    initial: bool, handled: Any, finalizers: list[str], reason: Reason
) -> None:
    body = make(handled=handled, metadata={**DELETED, "finalizers": finalizers})
    assert find(body, initial=initial).reason is reason


def test_deletions_have_the_changes_since_the_last_handling() -> None:
    found = find(make({"x": 2}, handled={"spec": {"x": 1}}, metadata={**DELETED, "finalizers": [FINALIZER]}))
    assert found.reason is Reason.DELETE
    assert (found.old, found.new) == ({"spec": {"x": 1}}, {"spec": {"x": 2}})
    assert found.diff == (("change", ("spec", "x"), 1, 2),)


def test_the_finalizer_is_configurable() -> None:
    body = make(metadata={**DELETED, "finalizers": ["mine"]})
    assert find(body).reason is Reason.FREE
    assert find(body, persistence=PersistenceSettings(finalizer="mine")).reason is Reason.DELETE


@pytest.mark.parametrize("text", ["garbage", "[]", "null"])
def test_objects_with_a_malformed_last_state_are_created_anew(text: str) -> None:
    assert find(make(annotations={LAST_HANDLED: text})).reason is Reason.CREATE
