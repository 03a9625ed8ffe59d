"""What is found in the text of one file, with nothing of it executed."""

from __future__ import annotations

from collections.abc import Iterator

from kopf._checking import asynchrony, declaring, repeating
from kopf._checking.findings import Finding
from kopf._checking.sources import Source

_RULES = (asynchrony.find_problems, declaring.find_problems, repeating.find_problems)


def check_code(source: Source) -> Iterator[Finding]:
    """Check the handlers of the file by the rules for code; what several handlers call, is reported for each."""
    for handler in source.handlers:
        for find_problems in _RULES:
            yield from find_problems(source, handler)
