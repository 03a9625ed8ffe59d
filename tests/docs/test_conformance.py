"""The table of conformance: it names only the tests that exist, and forgets none of their files."""

from __future__ import annotations

import fnmatch
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent.parent
TESTS = ROOT / "tests"
FOLDERS = ["behaviour", "admission", "admission/servers"]
TEXT, _, TOPICS = (ROOT / "docs" / "conformance.md").read_text().partition("## Where each topic is explained")
REFERENCES = sorted(set(re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::([\w*]+))?`", TEXT)))


def find_file(name: str) -> pathlib.Path:
    """Find the file by its path in the tests; those with no folder are about the behaviour, with few exceptions."""
    path = TESTS / "behaviour" / name
    return path if path.is_file() else TESTS / name


@functools.cache
def get_names(file: str) -> list[str]:
    if not find_file(file).is_file():
        return []
    return re.findall(r"^(?:async )?def (test_\w+)\(", find_file(file).read_text(), re.MULTILINE)


def test_every_named_test_exists() -> None:
    assert [ref for ref in REFERENCES if not fnmatch.filter(get_names(ref[0]), ref[1] or "*")] == []


def test_every_file_is_named() -> None:
    files = {path for folder in FOLDERS for path in (TESTS / folder).glob("test_*.py")}
    assert files - {find_file(file) for file, _ in REFERENCES} == set()


def test_nothing_else_is_in_the_cells_of_tests() -> None:
    """A mistyped reference must not slip through unnoticed."""
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and not line.startswith(("| Section", "|---"))]
    assert rows
    for row in rows:
        cell = row.strip("| ").rsplit("|", maxsplit=1)[-1].strip()
        assert all(re.fullmatch(r"`(\w+/)*test_\w+\.py(::[\w*]+)?`", item) for item in cell.split(", ")), row


def test_each_topic_has_a_page() -> None:
    """That the pages exist is checked with all other links."""
    rows = [line for line in TOPICS.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 30
    assert all(re.search(r"\(\S+\.md\)", row) for row in rows)
