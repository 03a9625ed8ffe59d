"""
The differences that stay: each is a row in ``docs/migration.md``, which tells what it is, why, and what to do.

An explanation tells by which lines of the outcomes, and in which cases, the difference is seen. All other lines must be
the same; and an explanation that is not needed any more, has to go.
"""
from __future__ import annotations

import dataclasses
import fnmatch
import re


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One difference in some of the cases."""
    row: str | None
    """The row in ``docs/migration.md``; or none, if it is a fault of this project that is known and not mended yet."""
    cases: tuple[str, ...]
    """The names of the cases, with ``*`` and ``?``."""
    lines: tuple[str, ...]
    """Regular expressions of the whole lines: ``- `` those of the original, ``+ `` ours."""

    def explains(self, line: str) -> bool:
        return any(re.fullmatch(pattern, line) for pattern in self.lines)

    def concerns(self, case: str) -> bool:
        return any(fnmatch.fnmatch(case, pattern) for pattern in self.cases)


EXPLANATIONS = [
    Explanation("resume-mixed-in", (
        "resume-given", "resume-given-with-create", "create-in-downtime", "recreated-while-down",
    ), (
        r"\+ life \d calls [^|]+ \| \w+ reason=create param=null retry=0",
        r"\+ step \d settle \| KopfExample default/obj status fn: \"resumed\"",
        r"\+ life \d log [^|]+ \| INFO Handler '\w+' succeeded.",
        r"[+-] life \d log [^|]+ \| INFO Creation is processed: . succeeded; 0 failed.",
    )),
    Explanation("edits-in-between", ("edited-while-held",), (
        r"\+ life 1 calls [^|]+ \| \w+ reason=update param=null retry=0",
        r"\+ life 1 log [^|]+ \| INFO Handler '\w+' succeeded.",
        r"\+ life 1 log [^|]+ \| INFO Updating is processed: 3 succeeded; 0 failed.",
    )),
    Explanation("deletion-afresh", ("delete-unfinished-*",), (
        r"- life 1 calls [^|]+ \| second reason=delete param=null retry=1",
        r"\+ life 1 calls [^|]+ \| \w+ reason=delete param=null retry=0",
        r"- life 1 log [^|]+ \| INFO \w+ is superseded by deletion: .*",
        r"\+ life 1 log [^|]+ \| INFO Handler '\w+' succeeded.",
    )),
    Explanation("types-in-diffs", ("update-kinds-of-values",), (
        r"[+-] life 1 calls [^|]+ \| update_fn .* diff: .*",
    )),
]

FAULTS = [
    # The finalizers that nobody needs any more.
    Explanation(None, ("restart-with-another-version", "restart-without-handlers-of-deletion"), (
        r"\+ step \d settle \| KopfExample default/obj finalizers: .*",
        r"[+-] life 2 calls [^|]+ \| .* meta: .*",
    )),
]
