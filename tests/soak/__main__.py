"""The long run: ``make soak``, an hour by default."""
from __future__ import annotations

import argparse
import asyncio
import pathlib
import sys
import tempfile

from tests.soak.soaking import Plan, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--duration", type=float, default=3600.0, help="seconds (default: %(default)s)")
    parser.add_argument("--objects", type=int, default=200, help="how many objects exist (default: %(default)s)")
    parser.add_argument("--pace", type=float, default=10.0, help="how rare the trouble is (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random decisions (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kopf-soak-") as directory:
        plan = Plan(options.duration, options.objects, options.pace, options.seed, verbose=True)
        report = asyncio.run(soak(plan, pathlib.Path(directory)))
    sys.stdout.write(report.describe() + "\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
