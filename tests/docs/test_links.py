"""Links between the pages lead somewhere: the files are there, and so are the headings that anchors are made of."""

from __future__ import annotations

import collections
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob("*.md")])
FOLDERS = ("src", "tools", "benchmarks", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
Link = tuple[str, pathlib.Path, str]
"""A link as it is written, its page, and its anchor."""


def read_prose(path: pathlib.Path) -> str:
    """Get a page without its blocks of code: there are comments that look like headings, and indices like links."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@functools.cache
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


def list_links(path: pathlib.Path) -> Iterator[Link]:
    for target in re.findall(r"\]\(([^)\s]+)", read_prose(path)):
        if "://" not in target and not target.startswith("mailto:"):
            name, _, anchor = target.partition("#")
            yield target, path.parent / name if name else path, anchor


def find_mentions(path: pathlib.Path) -> Iterator[Link]:
    for name, anchor in re.findall(r"(?<![\w/.-])(docs/[\w/-]+\.md)(?:#([\w-]+))?", path.read_text()):
        yield f"{name}#{anchor}", ROOT / name, anchor


def find_broken(files: Iterable[pathlib.Path], *lists: Callable[[pathlib.Path], Iterator[Link]]) -> list[str]:
    links = [(file, *link) for file in files for list_them in lists for link in list_them(file)]
    assert links
    return [
        f"{file}: {target}"
        for file, target, path, anchor in links
        if not path.exists() or (anchor and anchor not in list_anchors(path))
    ]


def test_links_of_pages() -> None:
    assert find_broken(PAGES, list_links, find_mentions) == []


def test_pages_that_the_code_names() -> None:
    assert find_broken(SOURCES, find_mentions) == []
