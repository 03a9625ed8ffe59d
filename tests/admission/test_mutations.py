"""What the mutating handlers change."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest
from hypothesis import given

import kopf
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch, merge, thaw
from tests.admission.reviewing import OBJECT, Reviewer, apply_response, make_object, read_patch
from tests.behaviour.running import Logs
from tests.values.strategies import objects, patches
from tests.values.test_patches import apply

pytestmark = pytest.mark.fastforward


def declare(changes: Any, **options: Any) -> None:
    @kopf.on.mutate("kopfexamples", id="fn", **options)
    def fn(patch: kopf.Patch, **_: Any) -> None:
        changes(patch)


CASES: dict[str, tuple[dict[str, Any], Any, list[dict[str, Any]]]] = {
    "change": (
        {"field": "value"},
        lambda patch: patch.spec.update(field="new"),
        [{"op": "replace", "path": "/spec/field", "value": "new"}],
    ),
    "addition": (
        {"field": "value"},
        lambda patch: patch.spec.update(other=[1]),
        [{"op": "add", "path": "/spec/other", "value": [1]}],
    ),
    "removal": (
        {"field": "value"},
        lambda patch: patch.spec.update(field=None),
        [{"op": "remove", "path": "/spec/field"}],
    ),
    "removal of what is absent": ({}, lambda patch: patch.spec.update(field=None), []),
    "nothing new": ({"field": "value"}, lambda patch: patch.spec.update(field="value"), []),
    "absent parents": (
        {},
        lambda patch: patch.status.update(a={"b": {"c": 1}}),
        [{"op": "add", "path": "/status", "value": {"a": {"b": {"c": 1}}}}],
    ),
    "existing parents": (
        {"a": {"x": 1}},
        lambda patch: patch.spec.update(a={"b": 1}),
        [{"op": "add", "path": "/spec/a/b", "value": 1}],
    ),
    "labels": (
        {},
        lambda patch: patch.meta.labels.update({"l": "v"}),
        [{"op": "add", "path": "/metadata/labels", "value": {"l": "v"}}],
    ),
    "slashes & tildes": (
        {"x": {"a/b~1": 1}},
        lambda patch: patch.spec.update(x={"a/b~1": 2, "~/": 3}),
        [{"op": "replace", "path": "/spec/x/a~1b~01", "value": 2}, {"op": "add", "path": "/spec/x/~0~1", "value": 3}],
    ),
    "lists": (
        {"items": [1, 2]},
        lambda patch: patch.spec.update(items=[1, 2, 3]),
        [{"op": "replace", "path": "/spec/items", "value": [1, 2, 3]}],
    ),
    "functions": (
        {"items": [1, 2]},
        lambda patch: patch.fns.append(lambda body: body["spec"]["items"].append(3)),
        [{"op": "replace", "path": "/spec/items", "value": [1, 2, 3]}],
    ),
    "functions after the dict": (
        {"items": []},
        lambda patch: (patch.spec.update(items=[1]), patch.fns.append(lambda body: body["spec"]["items"].append(2))),
        [{"op": "replace", "path": "/spec/items", "value": [1, 2]}],
    ),
    "functions that add parents": (
        {},
        lambda patch: patch.fns.append(lambda body: body.update(data={"x": 1})),
        [{"op": "add", "path": "/data", "value": {"x": 1}}],
    ),
    "functions that remove": (
        {"field": "value"},
        lambda patch: patch.fns.append(lambda body: body["spec"].pop("field")),
        [{"op": "remove", "path": "/spec/field"}],
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_patches(reviewer: Reviewer, name: str) -> None:
    spec, changes, operations = CASES[name]
    declare(changes)
    obj = make_object(spec)
    response = await reviewer.review("CREATE", obj, webhook="fn")
    assert (read_patch(response) if "patch" in response else []) == operations
    patch = Patch(body=obj)
    changes(patch)
    assert apply_response(response, obj) == patch.apply_to(obj)


async def test_no_patch(reviewer: Reviewer) -> None:
    declare(lambda patch: None)
    assert await reviewer.review() == {"allowed": True}


async def test_updates_are_relative_to_the_new_object(reviewer: Reviewer) -> None:
    declare(lambda patch: patch.spec.update(field="fixed"))
    assert await reviewer.review("UPDATE", make_object({"field": "fixed"})) == {"allowed": True}
    response = await reviewer.review("UPDATE", make_object({}), make_object({"field": "fixed"}))
    assert read_patch(response) == [{"op": "add", "path": "/spec/field", "value": "fixed"}]


async def test_several_handlers_patch_together(reviewer: Reviewer) -> None:
    @kopf.on.mutate("kopfexamples", id="first")
    def first(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["a"] = 1

    @kopf.on.mutate("kopfexamples")
    def second(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["b"] = 2

    response = await reviewer.review("CREATE", make_object({}))
    assert apply_response(response, make_object({})) == make_object({"a": 1, "b": 2})
    assert len(read_patch(await reviewer.review(webhook="first"))) == 1


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_there_is_nothing_to_patch_without_an_object(reviewer: Reviewer, logs: Logs, operation: str) -> None:
    declare(lambda patch: patch.spec.update(field="new"), operation=operation)
    assert await reviewer.review(operation) == {"allowed": True}
    assert len(logs.find(f"The patch is ignored: there is nothing to patch in {operation} requests.")) == 1


async def test_validating_handlers_do_not_patch(reviewer: Reviewer, logs: Logs) -> None:
    @kopf.on.validate("kopfexamples", id="check")
    def check(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["field"] = "bad"

    declare(lambda patch: patch.spec.update(field="good"))
    assert await reviewer.review(webhook="check") == {"allowed": True}
    assert len(logs.find("The patch of a validating handler is ignored: only mutating handlers can patch.")) == 1
    assert read_patch(await reviewer.review()) == [{"op": "replace", "path": "/spec/field", "value": "good"}]


def _fail(body: Any) -> None:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            lambda patch: patch.fns.append(_fail),
            rf"Cannot make the patch: The callback _fail \({re.escape(__file__)}:\d+\) in patch.fns of "
            rf"Webhook 'fn' has "
            "failed: ValueError: boom",
        ),
        (lambda patch: patch.spec.update(field=object()), "Cannot make the patch: .*object.*"),
        (lambda patch: patch.update({1: 2}), "Cannot make the patch: .*"),
    ],
    ids=["function", "value", "key"],
)
async def test_impossible_patches_deny(reviewer: Reviewer, logs: Logs, changes: Any, message: str) -> None:
    declare(changes)
    response = await reviewer.review()
    assert not response["allowed"]
    assert response["status"]["code"] == 500
    assert response["status"]["message"] == "Cannot make the patch: see the log of the operator."
    assert len(logs.find(message)) == 1


@given(obj=objects, patch=patches)
def test_applying_the_answer_is_the_same_as_merging_the_patch(obj: dict[str, Any], patch: dict[str, Any]) -> None:
    """For any patch of any object: in the dict form, and as the same changes made by a function."""
    source = {key: value for key, value in obj.items() if key != "metadata"} | {"metadata": {"name": "x"}}
    body = Body(KubeObject.from_dict(source))
    expected = thaw(source)
    merge(expected, patch)
    merged = Patch(patch, body=body)
    transformed = Patch(body=body, fns=[lambda body: merge(body, patch)])
    assert apply(source, merged.as_json_patch()) == expected
    assert apply(source, transformed.as_json_patch()) == expected
    assert thaw(body) == source


async def test_dry_runs_are_patched_too(reviewer: Reviewer) -> None:
    declare(lambda patch: patch.spec.update(field="new"))
    assert read_patch(await reviewer.review(dryRun=True))
    assert OBJECT["spec"] == {"field": "value"}


async def test_values_that_json_has_no_form_for(reviewer: Reviewer, logs: Logs) -> None:
    declare(lambda patch: patch.spec.update(field={"time": datetime.date(2026, 1, 2)}))
    response = await reviewer.review("CREATE", make_object({}), webhook="fn")
    assert read_patch(response)[0]["value"] == {"time": "2026-01-02"}
    await logs.wait(r"JSON has no form for some values of Webhook 'fn': spec\.field\.time \(date\)\. .*")


@pytest.mark.parametrize(
    ("options", "is_called"),
    [
        ({}, False),
        ({"operation": "UPDATE"}, False),
        ({"operation": "DELETE"}, True),
        ({"operations": ["UPDATE", "DELETE"]}, True),
        ({"operations": ["*"]}, True),
    ],
)
async def test_deletions_are_mutated_only_on_request(
    reviewer: Reviewer, options: dict[str, Any], is_called: bool
) -> None:
    """Otherwise, a handler that fails without the fields of new objects would make old ones undeletable."""

    @kopf.on.mutate("kopfexamples", **options)
    def fn(**_: Any) -> None:
        raise kopf.AdmissionError("never")

    response = await reviewer.review("DELETE", None, OBJECT)
    assert response["allowed"] is not is_called
