"""Our own records in patches are told in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kopf._insight.console.patch_details import keep, restore_patch
from kopf._insight.console.texts import show_details, show_patch
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples")
AT = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PREFIX = "kopf.zalando.org"


def make_record(**fields: Any) -> dict[str, Any]:
    return {"started": "2026-01-01T00:00:00.000000+00:00", "purpose": "create", **fields}


def write(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def annotate(**annotations: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {f"{PREFIX}/{name}": value for name, value in annotations.items()}}}


RETRYING = make_record(
    delayed="2026-01-01T00:00:45.100000+00:00",
    retries=3,
    success=False,
    failure=False,
    message="not bound",
)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (RETRYING, "attempt 3, again in 45 s"),
        ({**RETRYING, "delayed": "2025-01-01T00:00:00+00:00"}, "attempt 3, again at once"),
        (make_record(retries=1), "attempt 1, again at once"),
        (make_record(retries=2, success=True), "succeeded after 2 attempts"),
        (make_record(retries=1, failure=True), "failed permanently after 1 attempt"),
        (make_record(retries=0), "to be called"),
        ({**RETRYING, "delayed": "soon"}, "attempt 3, again at once"),
    ],
)
def test_progress(record: dict[str, Any], text: str) -> None:
    expected = [f"+ progress of `provision`: {text}"]
    assert show_patch(annotate(provision=write(record)), None, secret=False, at=AT) == expected
    status = {"status": {"kopf": {"progress": {"provision": record}}}}
    assert show_patch(status, None, secret=False, at=AT) == expected
    operation = {"op": "add", "path": f"/metadata/annotations/{PREFIX}~1provision", "value": json.dumps(record)}
    assert show_patch([operation], None, secret=False, at=AT)[0].startswith("+ ")


def test_both_storages_tell_it_once() -> None:
    patch = {**annotate(fn=write(RETRYING)), "status": {"kopf": {"progress": {"fn": RETRYING}}}}
    assert show_patch(patch, None, secret=False, at=AT) == ["+ progress of `fn`: attempt 3, again in 45 s"]


@pytest.mark.parametrize("message", ["short", "x" * 1000, "x" * 5000])
def test_large_records_from_the_listener(message: str) -> None:
    before = KubeObject.from_dict({"metadata": {"name": "obj", "annotations": {f"{PREFIX}/fn": '{"started":"x"}'}}})
    text = write({**RETRYING, "message": message})
    details = restore_patch(before, keep(annotate(fn=text)), is_secret=False)
    assert isinstance(details, dict)
    [line] = show_details(json.loads(json.dumps(details, default=lambda raw: json.loads(bytes(raw)))), AT)
    assert line == "~ progress of `fn`" + ("" if len(message) > 2000 else ": attempt 3, again in 45 s")


def test_records_that_are_removed() -> None:
    before = annotate(fn='{"started":"2026')
    assert show_patch(annotate(fn=None), before, secret=False, at=AT) == ["- progress of `fn`"]


def test_the_last_handled_state() -> None:
    lines = show_patch(annotate(**{"last-handled-configuration": '{"spec":{}}\n'}), None, secret=False, at=AT)
    assert lines == ["+ the last handled state"]


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"annotations": {"note": '{"started":"x"}', "a/b": '{"begun": 1}'}}},
        {"status": {"progress": {"fn": "started"}}},
        {"spec": {"progress": {"fn": RETRYING}}},
        {"metadata": {"labels": {"last-handled-configuration": "x"}}},
    ],
)
def test_what_is_not_ours_is_shown_as_it_is(changes: dict[str, Any]) -> None:
    assert "progress of" not in repr(show_patch(changes, None, secret=False, at=AT))
    assert "last handled state" not in repr(show_patch(changes, None, secret=False, at=AT))


def test_hostile_records() -> None:
    for record in (
        {**RETRYING, "delayed": "9999-12-31T23:59:59+00:00"},
        {**RETRYING, "delayed": "0001-01-01T00:00:00+00:00"},
        {**RETRYING, "retries": "<b>"},
        {**RETRYING, "retries": 10**400},
        {**RETRYING, "delayed": [1]},
    ):
        text = write(record)
        [line] = show_patch(annotate(fn=text), None, secret=False, at=AT)
        assert line.startswith("+ progress of `fn`")
        assert len(line) < 600


def test_nothing_of_secrets() -> None:
    text = write(RETRYING)
    assert show_patch(annotate(fn=text), None, secret=True, at=AT) == ["+ metadata: •••"]
