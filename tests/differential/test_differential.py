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
from tests.differential.lives import Case

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "migration.md"
ROWS = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)
SOME = 2
"""How many cases of each section are run here."""
RANDOM = int(os.environ.get("KOPF_TEST_LIVES", "16"))
"""How many random operators and lives are run here."""


async def check(cases: list[Case]) -> None:
    python = get_original_python()
    if python is None:
        pytest.skip(ORIGINAL_MISSING)
    async with run_host("original", python) as original, run_host("ours", get_own_python()) as ours:
        # They wait the most of the time.
        found = [comparison async for comparison in compare_all(cases, original, ours, at_once=24)]
    assert len(found) == len(cases)
    assert not any(comparison.unexplained for comparison in found), "\n".join(
        str(comparison) for comparison in found if comparison.unexplained
    )


@pytest.mark.timeout(300)
async def test_some_of_each_section() -> None:
    await check([case for cases in SECTIONS.values() for case in cases[:SOME]])


@pytest.mark.timeout(300)
async def test_random_operators_and_lives() -> None:
    await check([generate(number) for number in range(RANDOM)])


def test_the_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def test_rows_are_unique() -> None:
    assert len(ROWS) == len(set(ROWS))


@pytest.mark.parametrize("explanation", EXPLANATIONS, ids=lambda explanation: explanation.row)
def test_explanations_are_in_the_docs(explanation: Explanation) -> None:
    assert explanation.row in ROWS


@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_docs_are_explanations_or_tested_elsewhere(row: str) -> None:
    assert (row in {explanation.row for explanation in EXPLANATIONS}) != (row in TESTED_ELSEWHERE)


@pytest.mark.parametrize(("row", "test"), TESTED_ELSEWHERE.items())
def test_tests_elsewhere_exist_for_rows_of_the_docs(row: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert row in ROWS
    assert f"def {name}(" in (PAGE.parents[1] / "tests" / file).read_text()


def test_known_faults_are_not_in_the_docs() -> None:
    assert all(fault.row is None for fault in FAULTS)


@pytest.mark.parametrize("explanation", [*EXPLANATIONS, *FAULTS], ids=lambda explanation: explanation.row)
def test_explanations_are_of_existing_cases(explanation: Explanation) -> None:
    for pattern in explanation.cases:
        alone = Explanation(explanation.row, (pattern,), ())
        assert pattern.startswith("random-") or any(alone.concerns(case.name) for case in CASES), pattern
