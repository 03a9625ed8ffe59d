"""The long siege of the replicas: ``make siege``, half an hour by default."""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import shutil
import sys
import tempfile

from tests.replicas.besieging import LOOPS, SPARE, Plan, besiege


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replicas", description=__doc__)
    parser.add_argument("--duration", type=float, default=1800.0, help="seconds (default: %(default)s)")
    parser.add_argument("--objects", type=int, default=2000, help="how many objects exist (default: %(default)s)")
    parser.add_argument("--replicas", type=int, default=4, help="how many, at most (default: %(default)s)")
    parser.add_argument("--lease", type=int, default=5, help="its duration in seconds (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=6.0, help="between disturbances (default: %(default)s)")
    parser.add_argument("--changes", type=float, default=10.0, help="in a second (default: %(default)s)")
    parser.add_argument(
        "--spare", type=float, default=SPARE, help="beside a lease with no owner (default: %(default)s)"
    )
    parser.add_argument("--mode", choices=["shards", "leader"], default="shards")
    parser.add_argument("--seed", type=int, default=0, help="of the random decisions (default: %(default)s)")
    parser.add_argument("--loop", choices=[*LOOPS], default="uvloop", help="of the operators (default: %(default)s)")
    parser.add_argument("--kubeconfig", type=pathlib.Path, help="of the cluster (default: a new local one)")
    plan = Plan(**vars(parser.parse_args()), verbose=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kopf-replicas-"))
    sys.stdout.write(f"{plan}; the logs: {folder}\n")
    report = asyncio.run(besiege(plan, folder))
    sys.stdout.write(report.describe() + "\n")
    if report.failures:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
