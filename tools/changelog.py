"""
Moves the fragments of the changelog to a release: ``python tools/changelog.py 2.0.0 2026-12-31``.

The entries of ``changes/*.md`` follow those that the section "Unreleased" has already. This section gets the version
and the date, and a new one begins above it. With ``--check``, the fragments are only read.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
UNRELEASED = "## [Unreleased]\n"


def list_fragments(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.glob("*.md") if path.name != "README.md")


def read_fragments(folder: pathlib.Path) -> dict[str, str]:
    """Get the entries of each kind; exit if a fragment is not named ``NAME.KIND.md``, or is empty."""
    entries: dict[str, str] = {}
    for path in list_fragments(folder):
        kind = path.stem.rpartition(".")[2].capitalize()
        text = path.read_text().strip()
        if kind not in KINDS or not text or text.startswith(("-", "#")):
            raise SystemExit(f"{path.name}: it must be named NAME.KIND.md, and have the text of one entry.")
        entries[kind] = entries.get(kind, "") + "- " + text.replace("\n", "\n  ") + "\n"
    return entries


def release(changelog: str, entries: dict[str, str], version: str, date: str) -> str:
    """Add the entries to the unreleased ones, and make these the section of the version."""
    before, after = changelog.split(UNRELEASED)
    section, *older = re.split(r"^(?=## )", after, maxsplit=1, flags=re.MULTILINE)
    introduction, *parts = re.split(r"^### (\w+)\n", section, flags=re.MULTILINE)
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    for kind, text in entries.items():
        texts[kind] = texts.get(kind, "").rstrip() + "\n" + text
    sections = "".join(f"### {kind}\n\n{texts[kind].strip()}\n\n" for kind in KINDS if kind in texts)
    return f"{before}{UNRELEASED}\n## [{version}] - {date}\n{introduction}{sections}{''.join(older)}".rstrip() + "\n"


def main(args: list[str]) -> None:
    entries = read_fragments(ROOT / "changes")
    if args == ["--check"]:
        return
    version, date = args
    path = ROOT / "CHANGELOG.md"
    path.write_text(release(path.read_text(), entries, version, date))
    for fragment in list_fragments(ROOT / "changes"):
        fragment.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
