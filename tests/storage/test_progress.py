from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._storage.diffbase import AnnotationsDiffBaseStorage
from kopf._storage.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.patches import Patch, merge, thaw

KEY = HandlerId("parent/sub")
NOTHING = Body({"metadata": {}})
RECORD = ProgressRecord(
    started="2026-11-20T23:53:38.049971+00:00",
    stopped=None,
    delayed="2026-11-20T23:54:38.049971+00:00",
    purpose="create",
    retries=1,
    success=False,
    failure=False,
    message="boom",
    subrefs=[HandlerId("parent/a")],
)

STORAGES: list[ProgressStorage] = [
    AnnotationsProgressStorage(),
    AnnotationsProgressStorage(verbose=True),
    AnnotationsProgressStorage(v1=False),
    AnnotationsProgressStorage(prefix="my-op.example.com"),
    StatusProgressStorage(),
    StatusProgressStorage(field="status.my-op", touch_field="status.my-touch"),
    MultiProgressStorage([AnnotationsProgressStorage(prefix="my-op.example.com"), StatusProgressStorage()]),
    SmartProgressStorage(),
]

ids = st.sampled_from(["fn", "fn/spec.field", "x" * 63, "y" * 100, "with spaces", "имя"]).map(HandlerId)
times = st.none() | st.datetimes().map(lambda time: time.isoformat())
records: st.SearchStrategy[ProgressRecord] = st.fixed_dictionaries(
    {},
    optional={  # type: ignore[assignment]
        "started": times,
        "stopped": times,
        "delayed": times,
        "purpose": st.sampled_from([None, "create", "update", "delete", "resume"]),
        "retries": st.none() | st.integers(0, 9),
        "success": st.none() | st.booleans(),
        "failure": st.none() | st.booleans(),
        "message": st.none() | st.text(),
        "subrefs": st.none() | st.lists(ids, min_size=1),
    },
)


few = settings(max_examples=settings().max_examples // 2)
"""For each of the storages."""


def store(
    storage: ProgressStorage, key: HandlerId = KEY, record: ProgressRecord = RECORD, body: Body = NOTHING
) -> Patch:
    patch = Patch()
    storage.store(key=key, record=record, body=body, patch=patch)
    return patch


def purge(storage: ProgressStorage, key: HandlerId, body: Body, patch: Patch | None = None) -> Patch:
    patch = Patch() if patch is None else patch
    storage.purge(key=key, body=body, patch=patch)
    return patch


def touch(storage: ProgressStorage, value: str | None, body: Body = NOTHING) -> Patch:
    patch = Patch()
    storage.touch(body=body, patch=patch, value=value)
    return patch


def apply(body: Body, patch: Patch) -> Body:
    result = thaw(body)
    merge(result, patch)
    return Body(result)


def compact(record: ProgressRecord | None) -> dict[str, Any] | None:
    return None if record is None else {key: value for key, value in record.items() if value is not None}


# --- the persisted format ---


@pytest.mark.parametrize(
    ("storage", "name"),
    [
        (SmartProgressStorage(), "kopf.zalando.org/parent.sub"),
        (AnnotationsProgressStorage(), "kopf.zalando.org/parent.sub"),
        (AnnotationsProgressStorage(prefix="my-op.example.com"), "my-op.example.com/parent.sub"),
        (SmartProgressStorage(prefix="my-op.example.com"), "my-op.example.com/parent.sub"),
    ],
)
def test_the_format_of_the_annotations(storage: ProgressStorage, name: str) -> None:
    patch = store(storage)
    assert list(patch) == ["metadata"]
    assert list(patch["metadata"]) == ["annotations"]
    assert patch.metadata.annotations[name] == (
        '{"started":"2026-11-20T23:53:38.049971+00:00","delayed":"2026-11-20T23:54:38.049971+00:00",'
        '"purpose":"create","retries":1,"success":false,"failure":false,"message":"boom","subrefs":["parent/a"]}'
    )


def test_custom_prefixes_are_marked() -> None:
    patch = store(AnnotationsProgressStorage(prefix="my-op.example.com"))
    assert patch.metadata.annotations["my-op.example.com/kopf-managed"] == "yes"
    assert "kopf.zalando.org/kopf-managed" not in store(AnnotationsProgressStorage()).metadata.annotations


def test_verbose_annotations_have_the_absent_values_too() -> None:
    patch = store(AnnotationsProgressStorage(verbose=True))
    assert json.loads(patch.metadata.annotations["kopf.zalando.org/parent.sub"] or "") == RECORD


@pytest.mark.parametrize(
    ("storage", "path"),
    [
        (StatusProgressStorage(), ["status", "kopf", "progress"]),
        (StatusProgressStorage(name="my-op"), ["status", "my-op", "progress"]),
        (StatusProgressStorage(field="status.my-op"), ["status", "my-op"]),
        (StatusProgressStorage(field=["spec", "a.b"]), ["spec", "a.b"]),
    ],
)
def test_the_format_of_the_status(storage: StatusProgressStorage, path: list[str]) -> None:
    value: Any = store(storage)
    assert storage.field == tuple(path)
    for key in path:
        assert list(value) == [key]
        value = value[key]
    assert value == {"parent/sub": RECORD}


def test_the_fields_of_the_status_can_be_changed() -> None:
    storage = StatusProgressStorage()
    storage.field = "status.other"
    storage.touch_field = "status.touch"
    assert (storage.field, storage.touch_field) == (("status", "other"), ("status", "touch"))
    assert list(store(storage)["status"]) == ["other"]
    assert touch(storage, "x") == {"status": {"touch": "x"}}


@pytest.mark.parametrize("v1", [True, False])
def test_long_ids_are_stored_by_all_their_names_and_found_by_any(v1: bool) -> None:
    storage = AnnotationsProgressStorage(v1=v1)
    key = HandlerId("x" * 63)
    annotations = store(storage, key).metadata.annotations
    assert len(annotations) == (2 if v1 else 1)
    for name, text in annotations.items():
        body = Body({"metadata": {"annotations": {name: text}}})
        assert storage.fetch(key=key, body=body) == compact(RECORD)
        assert purge(storage, key, body).metadata.annotations == {name: None}


# --- storing, fetching, purging ---


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    "source",
    [
        {},
        {"metadata": {"annotations": {"x": "{}"}}, "status": {"kopf": {"progress": {}}}},
    ],
)
def test_unknown_handlers_have_no_records(storage: ProgressStorage, source: Any) -> None:
    assert storage.fetch(key=KEY, body=Body(source)) is None
    assert purge(storage, KEY, Body(source)) == {}
    assert touch(storage, None, Body(source)) == {}


@pytest.mark.parametrize("storage", STORAGES)
@few
@given(key=ids, first=records, second=records)
def test_what_is_stored_is_fetched_until_it_is_replaced(
    storage: ProgressStorage, key: HandlerId, first: ProgressRecord, second: ProgressRecord
) -> None:
    body = apply(NOTHING, store(storage, key, first))
    assert compact(storage.fetch(key=key, body=body) or {}) == compact(first)
    body = apply(body, store(storage, key, second, body))
    assert compact(storage.fetch(key=key, body=body) or {}) == compact(second)


@pytest.mark.parametrize("storage", STORAGES)
@few
@given(key=ids, record=records)
def test_purging_leaves_nothing(storage: ProgressStorage, key: HandlerId, record: ProgressRecord) -> None:
    record = ProgressRecord(**{**record, "purpose": "create"})  # even the emptiest of the real records has something
    stored = apply(NOTHING, store(storage, key, record))
    purged = apply(stored, purge(storage, key, stored))
    assert storage.fetch(key=key, body=purged) is None
    annotations = purged.metadata.annotations
    assert [name for name in annotations if not name.endswith("/kopf-managed")] == []
    assert not has_values(purged.status)


def has_values(stanza: Any) -> bool:
    """Tell if there is anything besides the emptied dicts, which merge-patches cannot remove."""
    return any(map(has_values, stanza.values())) if isinstance(stanza, Mapping) else True


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("is_stored", [False, True])
def test_purging_overrides_what_is_to_be_stored_in_the_same_patch(storage: ProgressStorage, is_stored: bool) -> None:
    body = apply(NOTHING, store(storage)) if is_stored else NOTHING
    patch = purge(storage, KEY, body, store(storage, body=body))
    assert storage.fetch(key=KEY, body=apply(body, patch)) is None


@pytest.mark.parametrize("storage", STORAGES)
def test_records_of_handlers_are_independent(storage: ProgressStorage) -> None:
    one, two = HandlerId("one"), HandlerId("two")
    body = apply(NOTHING, store(storage, one))
    body = apply(body, store(storage, two, ProgressRecord(retries=2), body))
    body = apply(body, purge(storage, one, body))
    assert storage.fetch(key=one, body=body) is None
    assert compact(storage.fetch(key=two, body=body)) == {"retries": 2}


@pytest.mark.parametrize("text", ["", "{", "garbage"])
def test_malformed_annotations_are_reported_and_presumed_absent(text: str, caplog: pytest.LogCaptureFixture) -> None:
    body = Body({"metadata": {"name": "x", "annotations": {"kopf.zalando.org/parent.sub": text}}})
    with caplog.at_level(logging.WARNING):
        assert SmartProgressStorage().fetch(key=KEY, body=body) is None
    assert "'kopf.zalando.org/parent.sub' of /x is malformed" in caplog.text


@pytest.mark.parametrize("text", ["null", "[]", "1", '"text"'])
def test_what_is_not_a_record_is_none(text: str) -> None:
    body = Body({"metadata": {"annotations": {"kopf.zalando.org/parent.sub": text}}})
    assert AnnotationsProgressStorage().fetch(key=KEY, body=body) is None
    body = Body({"metadata": {}, "status": {"kopf": {"progress": {"parent/sub": json.loads(text)}}}})
    assert StatusProgressStorage().fetch(key=KEY, body=body) is None


# --- the dummy fields of older operators ---


@pytest.mark.parametrize(
    ("storage", "patch"),
    [
        (AnnotationsProgressStorage(), {"metadata": {"annotations": {"kopf.zalando.org/touch-dummy": "x"}}}),
        (SmartProgressStorage(), {"metadata": {"annotations": {"kopf.zalando.org/touch-dummy": "x"}}}),
        (AnnotationsProgressStorage(touch_key="x/y"), {"metadata": {"annotations": {"kopf.zalando.org/x.y": "x"}}}),
        (StatusProgressStorage(), {"status": {"kopf": {"dummy": "x"}}}),
        (StatusProgressStorage(name="my-op"), {"status": {"my-op": {"dummy": "x"}}}),
    ],
)
def test_touching(storage: ProgressStorage, patch: Any) -> None:
    assert touch(storage, "x") == patch


@pytest.mark.parametrize("storage", STORAGES)
def test_the_dummies_are_removed_if_they_exist(storage: ProgressStorage) -> None:
    body = apply(NOTHING, touch(storage, "x"))
    assert touch(storage, None, body)
    assert touch(storage, None, apply(body, touch(storage, None, body))) == {}


def test_the_dummies_are_removed_from_everywhere_by_default() -> None:
    annotations = {"kopf.zalando.org/touch-dummy": "x"}
    body = Body({"metadata": {"annotations": annotations}, "status": {"kopf": {"dummy": "x"}}})
    assert touch(SmartProgressStorage(), None, body) == {
        "metadata": {"annotations": {"kopf.zalando.org/touch-dummy": None}},
        "status": {"kopf": {"dummy": None}},
    }


# --- the essence ---


@pytest.mark.parametrize("storage", STORAGES)
@few
@given(key=ids, record=records)
def test_the_progress_is_not_a_change_of_the_object(
    storage: ProgressStorage, key: HandlerId, record: ProgressRecord
) -> None:
    def get_essence(body: Body) -> Any:
        return storage.clear(essence=AnnotationsDiffBaseStorage().build(body=body, extra_fields=["status"]))

    body = Body({"metadata": {"labels": {"l": "v"}, "annotations": {"a": "v"}}, "spec": {}, "status": {"done": True}})
    stored = apply(body, store(storage, key, record, body))
    touched = apply(stored, touch(storage, "x", stored))
    purged = apply(touched, purge(storage, key, touched))
    assert [get_essence(state) for state in (body, stored, touched, purged)] == [get_essence(body)] * 4


def test_only_own_annotations_are_cleared() -> None:
    annotations = {"own.com/x": "1", "own.community/x": "2", "other": "3"}
    essence = AnnotationsProgressStorage(prefix="own.com").clear(essence={"metadata": {"annotations": annotations}})
    assert essence == {"metadata": {"annotations": {"own.community/x": "2", "other": "3"}}}


# --- several storages ---


def test_the_first_storage_that_has_a_record_is_read_but_all_are_written() -> None:
    first, second = StatusProgressStorage(), AnnotationsProgressStorage()
    multi = MultiProgressStorage([first, second])
    only_second = apply(NOTHING, store(second, record=ProgressRecord(retries=2)))
    both = apply(only_second, store(first, record=ProgressRecord(retries=1)))
    assert multi.fetch(key=KEY, body=only_second) == {"retries": 2}
    assert multi.fetch(key=KEY, body=both) == {"retries": 1}
    written = apply(NOTHING, store(multi))
    assert compact(first.fetch(key=KEY, body=written)) == compact(RECORD)
    assert second.fetch(key=KEY, body=written) == compact(RECORD)


def test_flushing_reaches_all_storages() -> None:
    class Cached(AnnotationsProgressStorage):
        flushed = False

        def flush(self) -> None:
            self.flushed = True

    storages = [Cached(), Cached()]
    MultiProgressStorage(storages).flush()
    assert all(storage.flushed for storage in storages)


def test_records_of_older_versions_are_in_the_status_and_new_ones_in_annotations_by_default() -> None:
    storage = SmartProgressStorage()
    old = Body({"metadata": {}, "status": {"kopf": {"progress": {"parent/sub": {"retries": 5}, "other": {}}}}})
    assert storage.fetch(key=KEY, body=old) == {"retries": 5}
    assert purge(storage, KEY, old) == {"status": {"kopf": {"progress": {"parent/sub": None}}}}
    patch = store(storage, body=old)
    assert list(patch) == ["metadata"]
    assert storage.fetch(key=KEY, body=apply(old, patch)) == compact(RECORD)


def test_the_options_of_the_default_storage_reach_the_inner_ones() -> None:
    storage = SmartProgressStorage(
        name="my-op",
        prefix="my-op.example.com",
        touch_key="touch",
        touch_field="status.{name}.touch",
        v1=False,
        verbose=True,
    )
    body = Body({"metadata": {}, "status": {"my-op": {"progress": {"parent/sub": {"retries": 5}}, "touch": "x"}}})
    assert storage.fetch(key=KEY, body=body) == {"retries": 5}
    assert touch(storage, None, body) == {"status": {"my-op": {"touch": None}}}
    assert touch(storage, "x") == {"metadata": {"annotations": {"my-op.example.com/touch": "x"}}}
    annotations = store(storage, HandlerId("x" * 63)).metadata.annotations
    assert json.loads(annotations["my-op.example.com/" + "x" * 63] or "") == RECORD
    assert len(annotations) == 2  # with the mark of the prefix


def test_the_interface_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ProgressStorage()  # type: ignore[abstract]  # this is what is tested
