"""Findings: the reports of ``kopf check``, their rules, and exemptions of lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from kopf._handlers.declarations import find_function_place

Severity = Literal["error", "warning"]

RULES: Mapping[str, Severity] = {
    "load": "error",
    "declaration": "error",
    "blocking-call": "error",
    "not-awaited": "error",
    "swallowed-error": "warning",
    "daemon-stopping": "warning",
    "timer-interval": "warning",
    "random-name": "warning",
    "not-idempotent": "warning",
    "endless-loop": "warning",
    "global-state": "warning",
    "lost-change": "error",
    "manual-finalizer": "warning",
    "several-versions": "warning",
    "unknown-resource": "error",
    "unknown-field": "error",
    "missing-permission": "error",
}
"""All rules: errors never work as written; warnings work until something happens, e.g. a restart."""

_EXEMPTION = re.compile(r"#\s*kopf:\s*ignore\[([\w\s,-]+)\]")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One problem, and its cure."""

    file: str
    line: int
    """The line, from 1; 0 if it is unknown."""
    rule: str
    text: str
    cure: str

    @property
    def severity(self) -> Severity:
        """The severity of the rule: ``error`` or ``warning``."""
        return RULES[self.rule]

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.severity}[{self.rule}]: {self.text}\n    {self.cure}"

    def as_dict(self) -> dict[str, str | int]:
        """Convert the finding for JSON."""
        return {**dataclasses.asdict(self), "severity": self.severity}


def find_place(fn: Callable[..., object]) -> tuple[str, int]:
    """Return the file and the line where a function begins; empty and 0 if it is unknown."""
    file, _, line = (find_function_place(fn) or "").rpartition(":")
    return file, int(line or 0)


def drop_exempted(findings: Iterable[Finding], texts: Mapping[str, str]) -> Iterator[Finding]:
    """Drop the findings that their lines exempt by ``# kopf: ignore[rule]``; ``texts`` are the contents of files."""
    lines = {file: text.splitlines() for file, text in texts.items()}
    for finding in findings:
        known = lines.get(finding.file, [])
        line = known[finding.line - 1] if 0 < finding.line <= len(known) else ""
        exempted = {name.strip() for text in _EXEMPTION.findall(line) for name in text.split(",")}
        if finding.rule not in exempted:
            yield finding
