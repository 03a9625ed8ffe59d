"""The report: medians of the rounds side by side, with how many times less this framework takes than the original."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence

from benchmarks.processes import Framework
from benchmarks.scenarios import SCENARIOS, Result

Row = list[str]

COLUMNS: dict[str, tuple[Callable[[Result], float | None], str]] = {
    "CPU ms/object": (lambda result: result.busy.cpu, ".2f"),
    "KiB/object": (lambda result: result.busy.memory, ".1f"),
    "peak MiB": (lambda result: result.peak, ".0f"),
    "API calls/object": (lambda result: result.busy.calls, ".2f"),
    "calm: CPU ms/object": (lambda result: result.calm.cpu if result.calm else None, ".2f"),
    "p50 ms": (lambda result: (result.calm or result.busy).p50, ".1f"),
    "p99 ms": (lambda result: (result.calm or result.busy).p99, ".1f"),
}

IDLE_COLUMNS: dict[str, tuple[Callable[[Result], float | None], str]] = {
    "start CPU s": (lambda result: result.start_cpu, ".2f"),
    "idle MiB": (lambda result: result.idle_memory, ".1f"),
}


def describe_machine(frameworks: Sequence[Framework]) -> str:
    """Tell what the numbers were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    lines = [
        f"{os.cpu_count()} cores, {cpu}, {memory:.0f} GiB, {platform.system()} {platform.release()}",
        *(f"{framework.name}: Python {_ask_versions(framework.python)}" for framework in frameworks),
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
    ]
    return "\n".join(lines)


def _ask_versions(python: pathlib.Path) -> str:
    code = (
        "import platform, importlib.metadata as m; "
        "print(platform.python_version(), *(f'{n} {m.version(n)}' for n in ('kopf', 'aiohttp', 'uvloop')), sep=', ')"
    )
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def make_rows(results: Sequence[Result]) -> list[Row]:
    rows = [["scenario", "objects", *COLUMNS]]
    for key, scenario in SCENARIOS.items():
        for size in sorted({result.size for result in results}):
            chosen = [result for result in results if (result.scenario, result.size) == (key, size)]
            if chosen:
                cells = [_compare(chosen, get, form) for get, form in COLUMNS.values()]
                rows.append([scenario.title, f"{size:,}", *cells])
    return rows


def make_idle_rows(results: Sequence[Result]) -> list[Row]:
    cells = [_compare(results, get, form) for get, form in IDLE_COLUMNS.values()]
    return [["with no objects", *IDLE_COLUMNS], ["", *cells]]


def _compare(results: Sequence[Result], get: Callable[[Result], float | None], form: str) -> str:
    """Put the medians side by side, e.g. ``0.50 / 3.00 (6.0x)``."""
    names = ("kopf", "original")
    values = [[get(result) for result in results if result.framework == name] for name in names]
    ours, original = (_get_median(numbers) for numbers in values)
    if ours is None and original is None:
        return "-"
    texts = ["-" if value is None else format(value, form) for value in (ours, original)]
    ratio = f" ({original / ours:.1f}x)" if ours and original and ours > 0 else ""
    return f"{texts[0]} / {texts[1]}{ratio}"


def _get_median(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.median(known) if known else None


def make_plain_table(results: Sequence[Result]) -> str:
    return "\n\n".join(_align(rows) for rows in _make_tables(results))


def make_markdown_table(results: Sequence[Result]) -> str:
    return "\n\n".join(_mark_down(rows) for rows in _make_tables(results))


def _make_tables(results: Sequence[Result]) -> list[list[Row]]:
    return [make_rows(results), make_idle_rows(results)]


def _align(rows: list[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _mark_down(rows: list[Row]) -> str:
    head, *body = rows
    separator = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, separator, *body])
