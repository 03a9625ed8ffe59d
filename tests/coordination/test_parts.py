"""Which part the operator takes in the work, by what is known of one peering object."""

from __future__ import annotations

import itertools

import pytest

from kopf._coordination.peers import Part, choose_part


@pytest.mark.parametrize(
    ("is_present", "is_mandatory", "is_denied", "is_invisible", "part"),
    [
        (True, False, False, False, Part.COMPARED),
        (True, True, False, False, Part.COMPARED),
        (True, False, True, False, Part.COMPARED),  # it is not seen by others, and gives way to them nevertheless
        (True, False, False, True, Part.COMPARED),  # it has seen the object in a response to its own record
        (True, True, True, False, Part.DENIED),
        (False, False, False, False, Part.ALONE),
        (False, True, False, False, Part.ABSENT),
        (False, True, True, True, Part.DENIED),
        (None, False, False, False, Part.UNDECIDED),
        (None, True, False, False, Part.UNDECIDED),
        (None, False, True, False, Part.UNDECIDED),  # the listing will tell
        (None, False, False, True, Part.UNDECIDED),  # the response to its own record will
        (None, False, True, True, Part.ALONE),
        (None, True, True, True, Part.DENIED),
    ],
)
def test_parts(is_present: bool | None, is_mandatory: bool, is_denied: bool, is_invisible: bool, part: Part) -> None:
    assert (
        choose_part(is_present=is_present, is_mandatory=is_mandatory, is_denied=is_denied, is_invisible=is_invisible)
        is part
    )


def test_nobody_works_alone_where_it_must_take_part() -> None:
    for is_present, is_denied, is_invisible in itertools.product((True, False, None), (True, False), (True, False)):
        part = choose_part(is_present=is_present, is_mandatory=True, is_denied=is_denied, is_invisible=is_invisible)
        assert part is not Part.ALONE
