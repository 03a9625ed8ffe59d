"""
Compare this project to the original framework: ``python -m tests.differential [names] [--random 300] [--seed 0]``.

The names are those of cases, with ``*`` and ``?``; all hand-written cases by default.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import os
import re
import time

from tests.differential.cases import CASES
from tests.differential.comparing import Comparison, compare_all, find_unneeded
from tests.differential.generating import generate
from tests.differential.hosting import get_original_python, get_own_python, run_host
from tests.differential.lives import Case


def choose(names: list[str], random: int, seed: int) -> list[Case]:
    """The cases of these names; random ones are known by their numbers."""
    cases = [*CASES, *(generate(number) for number in range(seed, seed + random))]
    cases += [generate(int(name.removeprefix("random-"))) for name in names if re.fullmatch(r"random-\d+", name)]
    return [case for case in cases if not names or any(fnmatch.fnmatch(case.name, name) for name in names)]


async def run(cases: list[Case], python: str, options: argparse.Namespace) -> list[Comparison]:
    comparisons = []
    async with run_host("original", python) as original, run_host("ours", options.ours) as ours:
        for _ in range(options.repeat):
            async for comparison in compare_all(cases, original, ours, at_once=options.at_once):
                comparisons.append(comparison)
                if options.verbose:
                    print(*comparison.outcomes[0], "", *comparison.outcomes[1], sep="\n")
                if comparison.unexplained:
                    print(comparison, flush=True)
    return comparisons


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--random", type=int, default=0, help="how many random operators and lives there are")
    parser.add_argument("--seed", type=int, default=0, help="what the random ones begin with")
    parser.add_argument("--at-once", type=int, default=16, help="how many cases are lived at once")
    parser.add_argument("--repeat", type=int, default=1, help="how many times to live all of them")
    parser.add_argument("--verbose", action="store_true", help="show the outcomes, not only the differences")
    parser.add_argument("--ours", default=get_own_python(), help="the interpreter with another version of this project")
    options = parser.parse_args()
    python = get_original_python()
    if python is None:
        parser.error("The original framework is not installed. Run: make original")
    os.environ.pop("KUBECONFIG", None)
    cases = choose(options.names, options.random, options.seed)
    began = time.monotonic()
    comparisons = asyncio.run(run(cases, python, options))
    unneeded = [] if options.names else find_unneeded(comparisons)
    for text in unneeded:
        print(f"An explanation is not needed any more: {text}")
    wrong = [comparison.case.name for comparison in comparisons if comparison.unexplained]
    same = sum(not comparison.differences for comparison in comparisons)
    print(
        f"{len(comparisons)} cases in {time.monotonic() - began:.0f} s: {same} are the same, "
        f"{len(comparisons) - same - len(wrong)} differ as explained, {len(wrong)} differ otherwise"
        + (f": {', '.join(sorted(wrong))}" if wrong else ".")
    )
    return 1 if wrong or unneeded else 0


if __name__ == "__main__":
    raise SystemExit(main())
