"""
Make a notebook of a script with cells (`# %%`, `# %% [markdown]`), with its outputs.

    .venv/bin/python -m tools.make_notebook examples/notebook/outage.py
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
import sys
from typing import Any

_MARK = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def make_notebook(script: str) -> str:
    """Run the cells of the script one after another, and give the notebook (nbformat 4.5)."""
    _, *parts = _MARK.split(script)
    variables: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for number, (title, source) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
        if "[markdown]" in title:
            text = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
            cell |= {"cell_type": "markdown", "source": _split(text)}
        else:
            output = _run(source, variables)
            cell |= {"cell_type": "code", "execution_count": None, "outputs": output, "source": _split(source)}
        cells.append(dict(sorted(cell.items())))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "<cell>", "exec"), variables)
    lines = _split(output.getvalue())
    return [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []


def _split(text: str) -> list[str]:
    return text.strip().splitlines(keepends=True)


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.with_suffix(".ipynb").write_text(make_notebook(path.read_text()), encoding="utf-8")
