"""
The screen of ``kopf demo``: the steps, and the log of the operator beside them.

In a wide terminal, there are two columns. In a narrow one, in a file, or in a pipe, the lines follow each other. In a
terminal, each line of the log fits into one row.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import textwrap
from typing import NamedTuple

import click

from kopf._logging.terminal_format import has_colours

_LEFT = 50
"""The width of the steps, in characters."""
_MIN_WIDTH = 110
"""The width of a terminal with space for both columns, in characters."""
_CODE = re.compile(r"(\x1b\[[0-9;]*m)")


class _Symbols(NamedTuple):
    mark: str
    bar: str
    more: str


class Screen:
    """The standard output, with colours if they are wanted."""

    def __init__(self) -> None:
        size = shutil.get_terminal_size()
        is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        self.symbols = _Symbols("✓", "│", "…") if is_unicode else _Symbols("ok", "|", ">")
        self._has_colours = has_colours(sys.stdout)
        self._columns = size.columns if is_terminal else sys.maxsize
        self._width = size.columns - _LEFT - 3 if is_terminal and size.columns >= _MIN_WIDTH else 0
        self._max_rows = size.lines - 2
        self._rows: tuple[list[str], list[str]] = ([], [])
        self._drawn = 0

    def tell(self, text: str, *, begin: str = "   ", fg: str | None = None, bold: bool | None = None) -> None:
        """Show a text in the column of the steps: after ``begin`` in its first line, and indented in the others."""
        for line in textwrap.wrap(text, _LEFT, initial_indent=begin, subsequent_indent=" " * len(begin)):
            self._add(0, click.style(line, fg=fg, bold=bold))

    def log(self, line: str) -> None:
        """Show a line in the column of the log."""
        self._add(1, line)

    def show(self, line: str = "", *, fg: str | None = None, bold: bool | None = None) -> None:
        """Show a line in the whole width, below all that was shown."""
        self._rows, self._drawn = ([], []), 0
        self._print(click.style(line, fg=fg, bold=bold))

    def _add(self, column: int, line: str) -> None:
        bar = click.style(self.symbols.bar, dim=True)
        if self._width <= 0:
            line = f"   {click.style('operator', dim=True)} {bar} {line}" if column else line
            self._print(self._fit(line, self._columns))
            return
        if max(map(len, self._rows)) >= self._max_rows:  # lines above the screen cannot be drawn again
            self._rows, self._drawn = ([], []), 0
        self._rows[column].append(line)
        rows = [
            f"{self._fit(left, _LEFT, is_filled=True)} {bar} {self._fit(right, self._width)}"
            for left, right in itertools.zip_longest(*self._rows, fillvalue="")
        ]
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._print(back + "\n".join(rows))
        self._drawn = len(rows)

    def _fit(self, line: str, width: int, *, is_filled: bool = False) -> str:
        """Cut the line to the width, or fill it; the codes of colours take no space."""
        missing = width - len(_CODE.sub("", line))
        if missing >= 0:
            return line + " " * (missing if is_filled else 0)
        left = width - len(self.symbols.more)
        found: list[str] = []
        for piece in _CODE.split(line):
            is_code = _CODE.fullmatch(piece) is not None
            found.append(piece if is_code else piece[:left])
            left -= 0 if is_code else len(found[-1])
        return "".join(found) + self.symbols.more

    def _print(self, text: str) -> None:
        click.echo(text if self._has_colours else _CODE.sub("", text), color=True)
