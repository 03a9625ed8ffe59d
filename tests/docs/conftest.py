"""How the code of the pages is found."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent.parent


def get_blocks(path: pathlib.Path, language: str) -> list[str]:
    """Get the blocks of code of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
