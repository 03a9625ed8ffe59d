"""The report: an explanation in words, in sections, for those who show it: in a terminal, or in a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kopf._logging.text_format import escape
from kopf._values.records import FrozenRecord


class Line(FrozenRecord, frozen=True):
    """One thing that is told, and what belongs to it."""

    text: str = ""
    name: str = ""
    """What it is about, e.g. a handler."""
    mark: str = ""
    """The answer in a word, e.g. ``yes``."""
    state: str = ""
    """How it stands, for those who have colours: ``failed``, ``retrying``, ``called``, ``add``, …"""
    lines: Sequence[Line] = ()

    def write(self, indent: str) -> Iterator[str]:
        """Write it down with all that belongs to it."""
        yield indent + ": ".join(part for part in (self.name, self.mark, self.text) if part)
        for line in self.lines:
            yield from line.write(f"{indent}  ")


class Section(FrozenRecord, frozen=True):
    """A heading, and what is below."""

    title: str
    lines: Sequence[Line]


class Report(FrozenRecord, frozen=True):
    """The whole: about which object it is, what is going on with it, and the details."""

    title: str
    summary: Sequence[Line]
    sections: Sequence[Section]

    def write(self) -> str:
        """
        Write it down for a terminal.

        Whatever comes from objects and servers is escaped: it can have control characters in it, for the terminal of
        those who look.
        """
        lines = [self.title, *(text for line in self.summary for text in line.write("  "))]
        for section in self.sections:
            lines += ["", f"{section.title}:", *(text for line in section.lines for text in line.write("  "))]
        return "\n".join(escape(line) for line in lines) + "\n"
