"""
Take the picture of the README: run `kopf demo` in a terminal of its own, and draw a part of it as an SVG.

    .venv/bin/python tools/take_terminal_picture.py [FILE]
"""

from __future__ import annotations

import html
import os
import pathlib
import pty
import re
import struct
import sys
import termios
from fcntl import ioctl

PICTURE = pathlib.Path(__file__).parent.parent / "docs" / "images" / "demo.svg"

COLUMNS, LINES = 132, 60
FIRST, LAST = "3. ", "6. "
"""The steps that are drawn: from the one, until the other; the whole is too long."""

WIDTH, HEIGHT = 8.0, 18
"""The size of a character, in pixels."""
COLOURS = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "35": "#d2a8ff",
    "36": "#79c0ff",
    "2": "#8b949e",
}
CODES = re.compile(r"\x1b\[([0-9;]*)m")


def run_in_terminal() -> str:
    """Give all that the command has written to its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.environ.update(TERM="xterm-256color", PYTHONUTF8="1")
        os.environ.pop("NO_COLOR", None)
        os.execv(sys.executable, [sys.executable, "-m", "kopf", "demo", "--fast"])
    output = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the end of a terminal
            break
        output += piece
    os.waitpid(pid, 0)
    return output.decode()


def list_rows(output: str) -> list[str]:
    """Give the rows as they are in the end: the only movement of the cursor is back to the beginning of a block."""
    rows: list[str] = []
    for line in output.replace("\r", "").split("\n"):
        while found := re.search(r"\x1b\[(\d+)F\x1b\[J", line):
            del rows[-int(found[1]) :]
            line = line[found.end() :]
        rows.append(line)
    return rows


def choose_rows(rows: list[str]) -> list[str]:
    """Give the rows from the first of the steps to the last one."""
    plain = [CODES.sub("", row).strip() for row in rows]
    [first] = [number for number, row in enumerate(plain) if row.startswith(FIRST)]
    [last] = [number for number, row in enumerate(plain) if row.startswith(LAST)]
    return rows[first : last - 1]  # without the empty one between the steps


def draw_row(number: int, row: str) -> str:
    """Draw the pieces of one row, each at its place: fonts differ in their widths."""
    pieces, column, colour, is_bold = [], 0, "", False
    for index, piece in enumerate(CODES.split(row)):
        if index % 2:
            codes = piece.split(";")
            is_reset = "0" in codes
            colour = next((COLOURS[code] for code in codes if code in COLOURS), "" if is_reset else colour)
            is_bold = "1" in codes or (is_bold and not is_reset)
        elif piece.strip():
            fill = (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if is_bold else "")
            x = 20 + WIDTH * (column + len(piece) - len(piece.lstrip()))
            length = WIDTH * len(piece.strip())
            text = html.escape(piece.strip())
            pieces.append(f'<tspan x="{x:g}" textLength="{length:g}"{fill}>{text}</tspan>')
        column += 0 if index % 2 else len(piece)
    return f'<text y="{50 + HEIGHT * number}" xml:space="preserve">{"".join(pieces)}</text>'


def draw(rows: list[str]) -> str:
    """Draw a window with the rows."""
    width, height = int(40 + WIDTH * COLUMNS), 60 + HEIGHT * len(rows)
    lights = "".join(
        f'<circle cx="{20 + 20 * n}" cy="18" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    title = f'<text x="{width // 2}" y="23" fill="#8b949e" text-anchor="middle">kopf demo</text>'
    texts = "\n".join(draw_row(number, row) for number, row in enumerate(rows))
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>kopf demo: the steps, and the log of the operator beside them</title>\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>\n{lights}\n'
        f'<g font-family="{font}" font-size="13" fill="#e6edf3">\n{title}\n{texts}\n</g>\n</svg>\n'
    )


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    target.write_text(draw(choose_rows(list_rows(run_in_terminal()))), encoding="utf-8")
