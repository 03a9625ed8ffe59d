"""
Compare what our own code takes to what was recorded: has anything become dearer since then?

    make budgets
    .venv/bin/python -m benchmarks.budgets --record

The figures are those of `benchmarks.cycle`: a handling cycle against prepared answers, with no network. What is
compared is not microseconds but ratios to the calibrating loop of the same run, so a slower or a busy machine changes
little. The best of many short rounds counts; and if something is over its limit, everything is measured again, a few
times: what is really dearer, remains so.

The history is in `benchmarks/history`: a file for every version of Python, a line for every figure. The latest line of
a figure is what it is compared to; `--record` adds new lines, when a release is made, or when a growth is accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TypedDict

from benchmarks.cycle import CALIBRATION, measure_cycles
from kopf._values.version import __version__

HISTORY = pathlib.Path(__file__).parent / "history"
LIMIT = 1.2
"""How many times dearer a figure can become."""

GRAIN = 0.1
"""By how much anything can be dearer, in runs of the calibrating loop: less than that is not measurable."""

DIFFERENCES_GRAIN = 0.6
"""The same for the differences of two figures, which have the noise of both."""

_DIFFERENCES = ("further handler", "further patch", "thread")

ATTEMPTS = 6
ROUNDS = 15
"""How many rounds there are in an attempt: they are short, as busy machines have quiet moments, not quiet minutes."""


class Record(TypedDict):
    """One line of the history."""

    figure: str
    ratio: float
    """To the calibrating loop."""
    micros: float
    """What it was in microseconds, on the machine of that time: for information only."""
    version: str
    date: str


def get_path() -> pathlib.Path:
    """Get the file of the history for this Python."""
    return HISTORY / f"{sys.version_info.major}.{sys.version_info.minor}.json"


def read_history(path: pathlib.Path) -> list[Record]:
    """Read all the lines, the oldest ones first."""
    records: list[Record] = json.loads(path.read_text()) if path.exists() else []
    return records


def write_history(path: pathlib.Path, records: Sequence[Record]) -> None:
    """Write all the lines: one for a figure, so that it is seen in a diff what has changed."""
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text(f"[\n{lines}\n]\n")


def find_growths(history: Sequence[Record], ratios: Mapping[str, float]) -> list[str]:
    """
    Say which of the figures have grown over their limits since they were recorded for the last time.

    The bare ones are of Python and of the machine: there is none of our code in them to become dearer.
    """
    latest = {record["figure"]: record["ratio"] for record in history}
    return [
        f"{figure}: {ratio:.2f}, it was {latest[figure]:.2f}"
        for figure, ratio in ratios.items()
        if figure in latest and not figure.startswith("bare ") and ratio > get_limit(figure, latest[figure])
    ]


def get_limit(figure: str, recorded: float) -> float:
    """Get the ratio that the figure must not exceed."""
    return max(recorded * LIMIT, recorded + (DIFFERENCES_GRAIN if figure in _DIFFERENCES else GRAIN))


def get_ratios(figures: Mapping[str, float]) -> dict[str, float]:
    """Relate the figures to the calibrating loop."""
    return {figure: micros / figures[CALIBRATION] for figure, micros in figures.items() if figure != CALIBRATION}


def measure(history: Sequence[Record]) -> dict[str, float]:
    """Measure until all the figures are within their limits, but not forever. Give the best figures, in µs."""
    best: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        figures = asyncio.run(measure_cycles(ROUNDS))
        best = {figure: min(micros, best.get(figure, micros)) for figure, micros in figures.items()}
        if history and not find_growths(history, get_ratios(best)):
            break
    return best


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budgets", description=__doc__)
    parser.add_argument("--record", action="store_true", help="add the figures to the history; there is no comparison")
    options = parser.parse_args()
    path = get_path()
    history = read_history(path)
    figures = measure([] if options.record else history)
    ratios = get_ratios(figures)
    for figure, ratio in ratios.items():
        print(f"{figure:<24} {figures[figure]:8.1f} µs {ratio:8.2f} of the calibrating loop")
    if options.record:
        date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        records: list[Record] = [
            {
                "figure": figure,
                "ratio": round(ratio, 2),
                "micros": round(figures[figure], 1),
                "version": __version__,
                "date": date,
            }
            for figure, ratio in ratios.items()
        ]
        write_history(path, [*history, *records])
        return 0
    if not history:
        print(f"There is nothing to compare it to: no {path.name} in the history.")
    growths = find_growths(history, ratios)
    for growth in growths:
        print(f"DEARER: {growth}", file=sys.stderr)
    return 1 if growths else 0


if __name__ == "__main__":
    sys.exit(main())
