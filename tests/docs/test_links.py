"""Links between the pages lead somewhere: the files are there, and so are the headings that anchors are made of."""

from __future__ import annotations

import collections
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob("*.md")])
FOLDERS = ("src", "tools", "benchmarks", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def read_prose(path: pathlib.Path) -> str:
    """Get a page without its blocks of code: there are comments that look like headings, and indices like links."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def list_anchors(path: pathlib.Path) -> set[str]:
    """Make anchors of the headings as GitHub does it."""
    seen: collections.Counter[str] = collections.Counter()
    anchors = set()
    for heading in re.findall(r"^#+ +(.*?) *$", read_prose(path), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def list_links(path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, str]]:
    for target in re.findall(r"\]\(([^)\s]+)", read_prose(path)):
        if "://" not in target and not target.startswith("mailto:"):
            name, _, anchor = target.partition("#")
            yield target, path.parent / name if name else path, anchor


def find_mentions(path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, str]]:
    for name, anchor in re.findall(r"(?<![\w/.-])(docs/[\w/-]+\.md)(?:#([\w-]+))?", path.read_text()):
        yield f"{name}#{anchor}", ROOT / name, anchor


def is_broken(path: pathlib.Path, anchor: str) -> bool:
    return not path.exists() or bool(anchor and anchor not in list_anchors(path))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_pages(page: pathlib.Path) -> None:
    links = [*list_links(page), *find_mentions(page)]
    assert [target for target, path, anchor in links if is_broken(path, anchor)] == []


def test_pages_that_the_code_names() -> None:
    mentions = [mention for source in SOURCES for mention in find_mentions(source)]
    assert mentions
    assert [target for target, path, anchor in mentions if is_broken(path, anchor)] == []


def test_what_is_a_heading(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# `kopf dev`: what's [new](x.md)?\n\n## A_b → c\n## Twice\n### Twice\n```\n# a comment\n```\n")
    assert list_anchors(page) == {"kopf-dev-whats-new", "a_b--c", "twice", "twice-1"}
