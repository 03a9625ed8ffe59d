from __future__ import annotations

import pytest

from kopf._operator.tasks import unwrap


class OneError(Exception):
    pass


class OtherError(Exception):
    pass


ONE, TWO, OTHER = OneError("1"), OneError("2"), OtherError("3")
MIXED = ExceptionGroup("", [ONE, OTHER])


@pytest.mark.parametrize(("error", "reason"), [
    (ONE, ONE),
    (ExceptionGroup("", [ONE]), ONE),
    (ExceptionGroup("", [ExceptionGroup("", [ONE]), ExceptionGroup("", [TWO])]), ONE),
    (MIXED, MIXED),
    (ExceptionGroup("", [MIXED]), MIXED),
])
def test_groups_are_reduced_to_the_reason_if_there_is_one(error: Exception, reason: Exception) -> None:
    assert unwrap(error) is reason
