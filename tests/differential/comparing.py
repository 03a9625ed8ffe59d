"""Compares the outcomes of one case under both frameworks, and tells what of it is explained."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import fnmatch
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence

from tests.differential.explained import EXPLANATIONS, FAULTS, Explanation
from tests.differential.hosting import Host
from tests.differential.lives import Case
from tests.differential.living import live


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences of one case."""

    case: Case
    differences: list[str]
    """The lines that only one of the frameworks has: ``- `` of the original, ``+ `` of this project."""
    unexplained: list[str]
    used: frozenset[Explanation]
    """The explanations that were needed."""
    outcomes: tuple[Sequence[str], Sequence[str]]
    """Everything that was seen, of the original and of this project."""

    def __str__(self) -> str:
        return "\n".join([f"{self.case.name}:", *(f"    {line}" for line in self.unexplained)])


def compare(case: Case, original: Sequence[str], ours: Sequence[str]) -> Comparison:
    candidates = [item for item in [*EXPLANATIONS, *FAULTS] if item.concerns(case.name)]
    differences = [*_find_differences(original, ours)]
    explained = {line: next((item for item in candidates if item.explains(line)), None) for line in differences}
    used = frozenset(item for item in explained.values() if item is not None)
    return Comparison(
        case, differences, [line for line in differences if explained[line] is None], used, (original, ours)
    )


def find_unneeded(comparisons: Collection[Comparison]) -> list[str]:
    """The explanations, and the cases in them, that explain nothing."""
    unneeded = []
    for item in [item for item in [*EXPLANATIONS, *FAULTS] if not item.is_luck]:
        names = [comparison.case.name for comparison in comparisons if item in comparison.used]
        unneeded += [
            f"{item.row or 'a known fault'}: {pattern}" for pattern in item.cases if not fnmatch.filter(names, pattern)
        ]
    return unneeded


def _find_differences(original: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    """What only one of them has. The kwargs are compared of those calls that both of them have."""
    theirs, own = [item.split("\n") for item in original], [item.split("\n") for item in ours]
    matcher = difflib.SequenceMatcher(a=[item[0] for item in theirs], b=[item[0] for item in own], autojunk=False)
    for what, begin, end, own_begin, own_end in matcher.get_opcodes():
        if what == "equal":
            for their_item, own_item in zip(theirs[begin:end], own[own_begin:own_end], strict=True):
                yield from (f"- {their_item[0]} | {line}" for line in their_item[1:] if line not in own_item)
                yield from (f"+ {own_item[0]} | {line}" for line in own_item[1:] if line not in their_item)
        else:
            yield from (f"- {item[0]}" for item in theirs[begin:end])
            yield from (f"+ {item[0]}" for item in own[own_begin:own_end])


async def compare_all(
    cases: Iterable[Case],
    original: Host,
    ours: Host,
    *,
    at_once: int = 16,
) -> AsyncIterator[Comparison]:
    """Live the cases under both frameworks, several at a time; give the comparisons as they are ready."""
    slots = asyncio.Semaphore(at_once)

    async def compare_one(case: Case) -> Comparison:
        async with slots:
            return compare(case, *await asyncio.gather(live(case, original), live(case, ours)))

    tasks = [asyncio.create_task(compare_one(case), name=case.name) for case in cases]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
