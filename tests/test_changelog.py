"""The fragments of the changelog, and how they get into a release."""

from __future__ import annotations

import pathlib

import pytest
from tools.changelog import ROOT, list_fragments, read_fragments, release

CHANGELOG = """# Changelog

## [Unreleased]

All is new.

### Added

- One.

### Fixed

- Two.

## [1.0.0] - 2025-01-01

### Added

- Zero.
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "README.md").write_text("# Not a fragment\n")
    return tmp_path


def test_fragments_of_the_project_are_well_formed() -> None:
    read_fragments(ROOT / "changes")
    (ROOT / "CHANGELOG.md").read_text().index("## [Unreleased]\n")


def test_entries_join_those_of_their_kinds(folder: pathlib.Path) -> None:
    (folder / "b.added.md").write_text("Three,\nin two lines.\n")
    (folder / "c.changed.md").write_text("Four.\n")
    assert [path.name for path in list_fragments(folder)] == ["b.added.md", "c.changed.md"]
    assert release(CHANGELOG, read_fragments(folder), "2.0.0", "2026-12-31") == (
        "# Changelog\n\n## [Unreleased]\n\n## [2.0.0] - 2026-12-31\n\nAll is new.\n\n"
        "### Added\n\n- One.\n- Three,\n  in two lines.\n\n### Changed\n\n- Four.\n\n### Fixed\n\n- Two.\n\n"
        "## [1.0.0] - 2025-01-01\n\n### Added\n\n- Zero.\n"
    )


def test_the_next_release_begins_with_an_empty_section() -> None:
    first = release(CHANGELOG, {}, "2.0.0", "2026-12-31")
    second = release(first, {"Fixed": "- Five.\n"}, "2.0.1", "2027-01-31")
    assert second.startswith(
        "# Changelog\n\n## [Unreleased]\n\n## [2.0.1] - 2027-01-31\n\n### Fixed\n\n- Five.\n\n## [2.0.0]"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "Text."),
        ("a.broken.md", "Text."),
        ("a.added.md", " \n"),
        ("a.added.md", "- An item."),
        ("a.fixed.md", "# A"),
    ],
)
def test_malformed_fragments_are_refused(folder: pathlib.Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(SystemExit, match=name):
        read_fragments(folder)
