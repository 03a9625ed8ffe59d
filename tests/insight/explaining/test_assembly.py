"""The explanation of an object as a whole: also of what is strange, hostile, secret."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

import kopf
from kopf._controller.changes.handler_states import HandlerState
from kopf._controller.changes.object_memory import Carried, Unsaved
from kopf._controller.changes.selection import Candidates, select
from kopf._handlers.causes import ChangingCause
from kopf._handlers.registry import HandlersOfResource
from kopf._insight.explaining.assembly import UNKNOWN_STATE, explain
from kopf._insight.explaining.dry_run import DryRun
from kopf._insight.explaining.wording import render
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason
from tests.insight.explaining.objects_and_facts import NOW, SECRETS, ask, declare, make_facts, make_object

PREFIX = "kopf.zalando.org"
DELETED = {"deletionTimestamp": "2026-11-23T12:00:00Z", "finalizers": [f"{PREFIX}/KopfFinalizerMarker"]}


def make_record(**fields: Any) -> str:
    return json.dumps({"started": "2026-11-23T11:59:00+00:00", "purpose": "create", "retries": 1, **fields})


# --- it is what the operator does ---

OPTIONS: list[Mapping[str, Any]] = [
    {},
    {"labels": {"app": "web"}},
    {"labels": {"app": "api"}},
    {"annotations": {"a": kopf.ABSENT}},
    {"field": "spec.size"},
    {"field": "spec.size", "value": 7},
    {"field": "spec.size", "value": 5},
    {"field": "spec.nosuch"},
    {"when": lambda spec, **_: spec.get("size") == 7},
    {"when": lambda **_: False},
    {"when": lambda **_: 1 / 0},
]
CHANGE_OPTIONS: list[Mapping[str, Any]] = [
    {"field": "spec.size", "old": 5},
    {"field": "spec.size", "new": 5},
    {"field": "spec.size", "old": 5, "new": 7},
]
STATES: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = [
    ({"spec": {"size": 7}}, None),
    ({"spec": {"size": 7}}, {"spec": {"size": 5}}),
    ({"spec": {"size": 7}},) * 2,
    ({"metadata": {"labels": {"app": "web"}}, "spec": {}}, {"spec": {"size": 7}}),
    ({"metadata": DELETED, "spec": {"size": 7}}, {"spec": {"size": 5}}),
    ({"spec": {"size": "x" * 100}}, {"spec": {}}),
]
DECLARATIONS = [
    *itertools.product([kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume], OPTIONS),
    *itertools.product([kopf.on.update], CHANGE_OPTIONS),
    *((kopf.on.field, options) for options in [*OPTIONS, *CHANGE_OPTIONS] if "field" in options),
]


@pytest.mark.parametrize(("content", "old"), STATES)
@pytest.mark.parametrize("initial", [False, True])
def test_the_verdict_is_that_of_the_operator(
    content: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    initial: bool,
) -> None:
    for decorator, options in DECLARATIONS:
        handlers = declare(decorator, **options)
        facts = make_facts(make_object(content, old=old), handlers, carried=Carried(initial=initial))
        [info] = explain(facts)["handlers"]
        dry_run = DryRun(facts)
        cause = dry_run.make_cause(handlers[0])
        assert isinstance(cause, ChangingCause)
        choice = select(Candidates(HandlersOfResource.build(handlers)), cause)
        assert (info["verdict"] == "called") == bool(choice.called), (decorator, options, info)
        assert (info["verdict"] == "unknown") == bool(choice.failures), (decorator, options, info)
        assert (info["verdict"] in ("rejected", "unknown")) == bool(info["rejections"]), (decorator, options, info)
        if not choice.accompanying and not choice.failures:
            assert info["verdict"] == "rejected", (decorator, options, info)


def test_only_one_function_of_several_with_one_id_is_called() -> None:
    handlers = [*declare(kopf.on.create), *declare(kopf.on.create), *declare(kopf.on.update)]
    one, two, other = ask(make_object({}), handlers)["handlers"]
    assert re.fullmatch(r"is for this creation, as is .*fn \(.*\) with the same id: only one is called", one["text"])
    assert two["text"] == one["text"]
    assert "same id" not in other["text"]


# --- progress ---


def test_objects_in_the_middle_of_retries() -> None:
    record = make_record(retries=3, delayed="2026-11-23T12:00:42+00:00", message="oops")
    answer = ask(make_object({"metadata": {"annotations": {f"{PREFIX}/fn": record}}}), declare(kopf.on.create))
    assert answer["handlers"][0]["progress"] == {
        "handler": "fn",
        "outcome": "retrying",
        "attempts": 3,
        "started": "2026-11-23T11:59:00.000+00:00",
        "next": "2026-11-23T12:00:42.000+00:00",
        "error": "oops",
        "purpose": "create",
        "saved": True,
    }
    assert answer["leftovers"] == []
    assert "is tried again in 42 s (12:00:42Z), after 3 attempts, for create; the last error: oops" in render(answer)


@pytest.mark.parametrize(
    ("message", "exception", "expected"),
    [
        ("'x'", "KeyError", "KeyError: 'x'"),
        ("ValueError", "ValueError", "ValueError"),  # it has had no text
        ("oops", None, "oops"),  # by the original framework
        ("oops", {"not": "a text"}, "oops"),
    ],
)
def test_the_last_error_is_told_with_its_class(message: str, exception: Any, expected: str) -> None:
    record = make_record(retries=3, message=message, exception=exception)
    answer = ask(make_object({"metadata": {"annotations": {f"{PREFIX}/fn": record}}}), declare(kopf.on.create))
    assert f", for create; the last error: {expected}\n" in f"{render(answer)}\n"


def test_after_a_crash_the_attempt_was_due() -> None:
    record = make_record(delayed="2026-11-23T11:00:00+00:00")
    answer = ask(make_object({"metadata": {"annotations": {f"{PREFIX}/fn": record}}}), declare(kopf.on.create))
    assert "should have been tried again 1 h ago (11:00:00Z), after 1 attempt" in render(answer)


def test_handlers_that_exist_no_more() -> None:
    annotations = {
        f"{PREFIX}/fn": make_record(subrefs=["fn/sub"], reentries=1),
        f"{PREFIX}/fn.sub": make_record(failure=True),
        f"{PREFIX}/gone": make_record(success=True),
        "other.example.com/fn": make_record(),
        "note": '{"started": "today"}',
        "text": "started",
    }
    answer = ask(make_object({"metadata": {"annotations": annotations}}), declare(kopf.on.create))
    [subhandler] = answer["handlers"][0]["subhandlers"]
    assert (subhandler["handler"], subhandler["outcome"]) == ("fn/sub", "failed")
    assert [info["handler"] for info in answer["leftovers"]] == [f"{PREFIX}/gone", "other.example.com/fn"]


def test_what_is_not_saved_yet() -> None:
    state = HandlerState(started=NOW, purpose="create", retries=1, success=True)
    carried = Carried(unsaved=Unsaved(Reason.CREATE, {HandlerId("fn"): state}, Patch()))
    answer = ask(make_object({}), declare(kopf.on.create), carried=carried)
    progress = answer["handlers"][0]["progress"]
    assert progress is not None
    assert (progress["outcome"], progress["saved"]) == ("succeeded", False)
    assert "this is not on the object yet" in render(answer)


def test_deletions() -> None:
    answer = ask(make_object({"metadata": {**DELETED, "finalizers": ["x", *DELETED["finalizers"]]}}), [])
    assert answer["object"]["deleted"] == DELETED["deletionTimestamp"]
    blockers = "x, kopf.zalando.org/KopfFinalizerMarker"
    assert f"It is being deleted, since now (12:00:00Z); the deletion waits for: {blockers}." in render(answer)


STATE = {**UNKNOWN_STATE, "text": "is being handled by fn", "since": "2026-11-23T11:59:30+00:00"}
PROGRESS = {
    "handler": "fn",
    "attempts": 2,
    "started": "2026-11-23T11:58:00",
    "next": None,
    "error": "oops",
    "purpose": "create",
    "saved": False,
}
RUN = {"state": "running", "text": "runs", "attempts": 3, "since": None, "next": "2026-11-23T12:00:10", "error": "no"}
DECISION = {
    "at": "2026-11-23T11:50:00",
    "reason": "create",
    "text": "creation: calls fn",
    "called": ["fn"],
    "error": None,
    "next": "2026-11-23T11:51:00",
    "attempts": [
        {
            "handler": "fn",
            "at": "2026-11-23T11:50:00",
            "outcome": "retrying",
            "error": "oops",
            "next": "2026-11-23T11:51:30",
        }
    ],
}
EVENT = {"at": "2026-11-23T11:00:00", "type": "Normal", "reason": "Logging", "message": "hello", "count": 2}


@pytest.mark.parametrize(
    ("changes", "handler", "lines"),
    [
        (
            {"operator": {"paused": ["a senior"], "blocked": None}, "state": STATE},
            {},
            ["It is being handled by fn since 30 s ago (11:59:30Z).", "The operator is paused: a senior."],
        ),
        (
            {"operator": {"paused": [], "blocked": "fn() at x.py"}, "state": {**STATE, "unsaved": "a patch"}},
            {},
            ["The event loop of the operator is blocked by fn() at x.py.", "Unsaved: a patch."],
        ),
        ({"events": [EVENT]}, {}, ["1 h ago (11:00:00Z): Normal Logging: hello (×2)"]),
        (
            {"decisions": [DECISION]},
            {},
            [
                "10 min ago (11:50:00Z): creation: calls fn; again 1 min later",
                "fn failed for now: oops; again 1 min 30 s later",
            ],
        ),
        (
            {"decisions": [{**DECISION, "error": "422"}]},
            {},
            ["the object could not be handled: 422", "fn failed for now: oops"],
        ),
        (
            {},
            {"progress": {**PROGRESS, "outcome": "running"}},
            [
                "runs since 2 min ago (11:58:00Z), attempt 3, for create; the last error: oops; "
                "this is not on the object yet"
            ],
        ),
        (
            {},
            {"progress": {**PROGRESS, "outcome": "pending", "error": None, "saved": True}},
            ["was not called yet, for create"],
        ),
        (
            {"operator": {"paused": ["x"], "blocked": None}},
            {"progress": {**PROGRESS, "outcome": "retrying", "saved": True}},
            ["is tried again when the operator goes on, after 2 attempts, for create; the last error: oops"],
        ),
        ({}, {"run": RUN}, ["runs, next in 10 s (12:00:10Z), after 3 failures; the last error: no"]),
    ],
)
def test_words(changes: dict[str, Any], handler: dict[str, Any], lines: list[str]) -> None:
    answer: Any = {**ask(make_object({}), declare(kopf.on.create)), **changes}
    answer["handlers"][0].update(handler)
    assert {*lines} <= {line.strip() for line in render(answer).splitlines()}


# --- hostile objects ---


def test_deep_objects() -> None:
    depth = 100_000
    spec = '{"a":' * depth + "1" + "}" * depth
    raw = '{"apiVersion":"kopf.dev/v1","kind":"KopfExample","metadata":{"name":"obj"},"spec":' + spec + "}"
    answer = ask(KubeObject.from_json(raw.encode()), declare(kopf.on.create))
    assert answer["object"]["problem"] == "it is nested too deeply"
    assert "It cannot be handled: it is nested too deeply." in render(answer)


@pytest.mark.parametrize("spec", ['{"a": 1e999}', '{"a": NaN}', '{"a": "\\udc00"}', "[]", '"text"', "1"])
def test_objects_that_are_not_as_they_must_be(spec: str) -> None:
    raw = '{"apiVersion":"kopf.dev/v1","kind":"KopfExample","metadata":{"name":"obj"},"spec":' + spec + "}"
    handlers = [*declare(kopf.on.create, field="spec.size"), *declare(kopf.on.event), *declare(kopf.timer, interval=1)]
    answer = ask(KubeObject.salvage(raw.encode()), handlers)
    assert answer["object"]["name"] == "obj"
    json.dumps(answer)


def test_huge_objects_are_told_in_a_few_words() -> None:
    spec = {f"key{i}": "x" * 1000 for i in range(1000)}
    answer = ask(make_object({"spec": spec}, old={"spec": {}}), declare(kopf.on.update, field="spec", value="y"))
    assert answer["handled"] is not None
    assert len(answer["handled"]["changes"]) == 20
    assert answer["handled"]["more"] == 980
    assert len(json.dumps(answer)) < 20_000
    assert "  … and 980 more" in render(answer)


def test_terminals_are_not_controlled() -> None:
    evil = "\x1b[2J\x9b31m\u202e\r\n\x00\x07"
    content = {
        "metadata": {"labels": {"app": evil}, "annotations": {f"{PREFIX}/fn": make_record(message=evil)}, "name": evil},
        "spec": {evil: evil},
    }
    handlers = [*declare(kopf.on.create), *declare(kopf.on.create, labels={"app": "web"})]
    text = render(ask(make_object(content, old={"spec": {evil: 1}}), handlers))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\x1b[2J" in text


def test_comparisons_that_fail() -> None:
    class Evil:
        def __eq__(self, other: object) -> bool:
            return False

        def __hash__(self) -> int:
            return 1

        def __repr__(self) -> str:
            raise RuntimeError("no text")

    handlers = declare(kopf.on.create, field="spec.size", value=Evil())
    [info] = ask(make_object({"spec": {"size": 1}}), handlers)["handlers"]
    assert info["rejections"][0]["expected"] == "<Evil>"


# --- secrets ---


def test_nothing_of_the_data_of_secrets_is_shown() -> None:
    plain, encoded = "correct horse", base64.b64encode(b"correct horse").decode()

    def fail(body: Any, **_: Any) -> bool:
        raise RuntimeError(f"It is {base64.b64decode(body['data']['password']).decode()}!")

    handlers = [
        *declare(kopf.on.update, field="data.password", value="battery staple"),
        *declare(kopf.on.update, field="data.password", old="battery", new="staple"),
        *declare(kopf.on.update, field="data", value={"password": "battery staple"}),
        *declare(kopf.on.update, when=fail),
        *declare(kopf.on.event, when=fail),
        *declare(kopf.on.update, annotations={"copy": "another"}),
        *declare(kopf.on.update, labels={"app": "web"}),
    ]
    content = {
        "metadata": {
            "annotations": {
                "copy": plain,
                f"{PREFIX}/fn": make_record(message=plain),
                "gone": make_record(message=plain),
            }
        },
        "data": {"password": encoded},
        "stringData": {"other": plain},
    }
    old = {"data": {"password": "YmF0dGVyeQ=="}, "type": "Opaque"}
    answer = ask(make_object(content, old=old), handlers, resource=SECRETS)
    text = json.dumps(answer) + render(answer)
    for secret in (plain, encoded, "YmF0dGVyeQ==", "battery", "staple"):
        assert secret not in text
    assert "(hidden)" in text
    assert "RuntimeError" in text
    assert answer["handled"] is not None
    changed = {change["field"] for change in answer["handled"]["changes"]}
    assert changed == {"data.password", "stringData", "type", "metadata"}
    assert answer["handlers"][-1]["rejections"][0]["expected"] == '"web"'  # labels are no secrets
