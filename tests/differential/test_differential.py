"""
The same operators and the same lives under the original framework and under this project: some of them.

All of them are run by ``make differential``.
"""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from tests.conftest import ORIGINAL_MISSING
from tests.differential.cases import CASES, SECTIONS
from tests.differential.comparing import compare_all
from tests.differential.explained import EXPLANATIONS, FAULTS, TESTED_ELSEWHERE, Explanation
from tests.differential.generating import generate
from tests.differential.hosting import get_original_python, get_own_python, run_host

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "migration.md"
ROWS = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)
SOME = 2
"""How many cases of each section are run here."""
RANDOM = int(os.environ.get("KOPF_TEST_LIVES", "6"))
"""How many random operators and lives are run here."""


@pytest.mark.timeout(300)
async def test_some_of_each_section_and_some_random_ones() -> None:
    python = get_original_python()
    if python is None:
        pytest.skip(ORIGINAL_MISSING)
    cases = [case for cases in SECTIONS.values() for case in cases[:SOME]] + [*map(generate, range(RANDOM))]
    async with run_host("original", python) as original, run_host("ours", get_own_python()) as ours:
        # They wait the most of the time.
        found = [comparison async for comparison in compare_all(cases, original, ours, at_once=24)]
    assert len(found) == len(cases)
    assert not any(comparison.unexplained for comparison in found), "\n".join(
        str(comparison) for comparison in found if comparison.unexplained
    )


def test_the_names_are_unique() -> None:
    for names in ([case.name for case in CASES], ROWS):
        assert sorted(names) == sorted(set(names))


def test_rows_of_the_docs_are_explanations_or_tested_elsewhere() -> None:
    explained = {explanation.row for explanation in EXPLANATIONS}
    assert explained & TESTED_ELSEWHERE.keys() == set()
    assert explained | TESTED_ELSEWHERE.keys() == {*ROWS}


@pytest.mark.parametrize("test", TESTED_ELSEWHERE.values())
def test_tests_elsewhere_exist(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (PAGE.parents[1] / "tests" / file).read_text()


def test_known_faults_are_not_in_the_docs() -> None:
    assert all(fault.row is None for fault in FAULTS)


def test_explanations_are_of_existing_cases() -> None:
    alone = [Explanation(item.row, (pattern,), ()) for item in [*EXPLANATIONS, *FAULTS] for pattern in item.cases]
    unknown = [item for item in alone if not any(item.concerns(case.name) for case in CASES)]
    assert [item for item in unknown if not item.cases[0].startswith("random-")] == []
