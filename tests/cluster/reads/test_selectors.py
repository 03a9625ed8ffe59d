from __future__ import annotations

import pytest

from kopf_cluster.kinds.selectors import parse_fields, parse_labels
from kopf_cluster.statuses import APIStatus
from kopf_cluster.store.watch_cache import Record


def make_record(labels: dict[str, str], fields: dict[str, str] | None = None) -> Record:
    return Record(key=("ns", "obj"), revision=1, data=b"", uid="", labels=labels, fields=fields or {}, owners=())


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        ("a=b", [{"a": "b"}], [{}, {"a": "c"}]),
        ("a==b", [{"a": "b"}], [{}, {"a": "c"}]),
        ("a = b , c = d", [{"a": "b", "c": "d"}], [{"a": "b"}, {"c": "d"}]),
        ("a!=b", [{}, {"a": "c"}], [{"a": "b"}]),
        ("a", [{"a": ""}], [{}, {"b": "a"}]),
        ("!a", [{}], [{"a": ""}]),
        ("a in (b, c)", [{"a": "b"}, {"a": "c"}], [{}, {"a": "d"}]),
        ("a in ()", [{"a": ""}], [{}]),
        ("a notin (b,c)", [{}, {"a": "d"}], [{"a": "b"}]),
        ("a=", [{"a": ""}], [{}, {"a": "b"}]),
        ("example.com/a-b_c=x.y", [{"example.com/a-b_c": "x.y"}], [{}]),
        ("n>5", [{"n": "6"}], [{"n": "5"}, {"n": "x"}, {}]),
        ("n<5", [{"n": "4"}], [{"n": "5"}]),
        ("in=x,notin", [{"in": "x", "notin": ""}], [{"in": "x"}]),
    ],
)
def test_label_selectors(text: str, accepted: list[dict[str, str]], rejected: list[dict[str, str]]) -> None:
    predicate = parse_labels(text)
    assert predicate is not None
    assert all(predicate(make_record(labels)) for labels in accepted)
    assert not any(predicate(make_record(labels)) for labels in rejected)


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_label_selectors_select_everything(text: str) -> None:
    assert parse_labels(text) is None


@pytest.mark.parametrize("text", ["=a", "a=b,", "a b", "a in b", "a in (b", "a,,b", "!", "a=b c=d"])
def test_wrong_label_selectors_are_bad_requests(text: str) -> None:
    with pytest.raises(APIStatus) as error:
        parse_labels(text)
    assert error.value.code == 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metadata.name=obj", True),
        ("metadata.name==obj,metadata.namespace=ns", True),
        ("metadata.name!=obj", False),
        ("status.phase=Running", True),
        ("status.phase!=Running", False),
        ("status.phase=a\\,b", False),
        ("spec.node=", True),
    ],
)
def test_field_selectors(text: str, expected: bool) -> None:
    predicate = parse_fields(text, ["status.phase", "spec.node"])
    assert predicate is not None
    assert predicate(make_record({}, {"status.phase": "Running"})) is expected


@pytest.mark.parametrize("text", ["spec.x=1", "status.phase", "=x"])
def test_wrong_field_selectors_are_bad_requests(text: str) -> None:
    with pytest.raises(APIStatus) as error:
        parse_fields(text, ["status.phase"])
    assert error.value.code == 400
