from __future__ import annotations

from typing import Any

import pytest

from kopf._handlers.filter_criteria import ABSENT, PRESENT
from kopf._handlers.filters import matches_change
from kopf._values.reasons import Reason
from tests.handlers.builders import make_changing_cause, make_changing_handler

ADDED, EDITED, REMOVED, SAME = (None, "new"), ("old", "new"), ("old", None), ("same", "same")


def matches(change: tuple[Any, Any], **filters: Any) -> bool:
    old, new = ({} if value is None else {"field": value} for value in change)
    handler = make_changing_handler(field=("spec", "field"), **filters)
    cause = make_changing_cause({}, Reason.UPDATE, old={"spec": {"x": 1, **old}}, new={"spec": {"x": 2, **new}})
    return matches_change(handler, cause)


@pytest.mark.parametrize(
    ("change", "filters", "expected"),
    [
        # Without criteria, the field must be affected in any way.
        (ADDED, {}, True),
        (EDITED, {}, True),
        (REMOVED, {}, True),
        (SAME, {}, False),
        ((1, True), {}, True),  # as in JSON
        (([0], [False]), {}, True),
        ((None, None), {}, False),
        # Those that are not, do not match even if they satisfy the criteria.
        (SAME, {"value": "same"}, False),
        (SAME, {"old": "same"}, False),
        (SAME, {"new": "same"}, False),
        (SAME, {"value": PRESENT}, False),
        (SAME, {"old": PRESENT, "new": PRESENT}, False),
        (SAME, {"value": lambda value, **_: True}, False),
        # The value is either the old or the new one.
        (EDITED, {"value": "old"}, True),
        (EDITED, {"value": "new"}, True),
        (EDITED, {"value": "other"}, False),
        (EDITED, {"value": PRESENT}, True),
        (EDITED, {"value": ABSENT}, False),
        (ADDED, {"value": "new"}, True),
        (ADDED, {"value": PRESENT}, True),
        (ADDED, {"value": ABSENT}, True),
        (REMOVED, {"value": "old"}, True),
        (REMOVED, {"value": PRESENT}, True),
        (REMOVED, {"value": ABSENT}, True),
        (EDITED, {"value": lambda value, **_: value == "old"}, True),
        (EDITED, {"value": lambda value, **_: value == "new"}, True),
        (EDITED, {"value": lambda value, **_: False}, False),
        # The old and new values are checked separately.
        (EDITED, {"old": "old", "new": "new"}, True),
        (EDITED, {"old": "old", "new": "other"}, False),
        (EDITED, {"old": "other", "new": "new"}, False),
        (EDITED, {"new": "new"}, True),
        (ADDED, {"new": "new"}, True),
        (REMOVED, {"new": "new"}, False),
        (EDITED, {"old": "old"}, True),
        (REMOVED, {"old": "old"}, True),
        (ADDED, {"old": "old"}, False),
        (EDITED, {"old": "new"}, False),
        (EDITED, {"new": "old"}, False),
        (ADDED, {"old": ABSENT, "new": PRESENT}, True),
        (EDITED, {"old": ABSENT, "new": PRESENT}, False),
        (REMOVED, {"old": PRESENT, "new": ABSENT}, True),
        (EDITED, {"old": PRESENT, "new": ABSENT}, False),
        (EDITED, {"old": PRESENT, "new": PRESENT}, True),
        (EDITED, {"old": lambda value, **_: value == "old", "new": lambda value, **_: value == "new"}, True),
        (EDITED, {"old": lambda value, **_: value == "new"}, False),
        (ADDED, {"old": lambda value, **_: value is None}, True),
        # Values that are false are values.
        ((0, 1), {"old": 0}, True),
        ((True, False), {"new": False}, True),
        ((True, False), {"new": True}, False),
        (("x", ""), {"new": ""}, True),
        ((None, ""), {"new": PRESENT}, True),
    ],
)
def test_changes_of_a_field(change: Any, filters: Any, expected: bool) -> None:
    assert matches(change, **filters) is expected


def test_creation_is_a_change_from_nothing() -> None:
    handler = make_changing_handler(field=("spec", "field"), old=ABSENT, new="new")
    assert matches_change(handler, make_changing_cause({"spec": {"field": "new"}}, Reason.CREATE, old=None))
    assert not matches_change(handler, make_changing_cause({"spec": {}}, Reason.CREATE, old=None))


def test_handlers_of_whole_objects_match_any_change() -> None:
    assert matches_change(make_changing_handler(), make_changing_cause({}, Reason.UPDATE, old={}, new={"spec": {}}))


def test_fields_are_affected_by_the_changes_inside_of_them() -> None:
    handler = make_changing_handler(field=("spec",))
    old, new = {"spec": {"a": {"b": 1}}}, {"spec": {"a": {"b": 2}}}
    assert matches_change(handler, make_changing_cause({}, Reason.UPDATE, old=old, new=new))
    assert not matches_change(handler, make_changing_cause({}, Reason.UPDATE, old=old, new={**old, "data": {}}))
