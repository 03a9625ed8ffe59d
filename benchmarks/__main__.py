"""
Measure operators under this framework and under the original one, in turn, against the local cluster.

    make bench ARGS="--quick"
    make bench ARGS="--sizes 1000 --scenarios create,life --json results.json"
    KUBECONFIG=~/.kube/config make bench ARGS="--quick"

With ``KUBECONFIG``, they are measured on that cluster instead: in a namespace and with a definition of a resource of
their own, which are removed in the end. What the cluster itself takes, and the requests, are not known then.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys

from benchmarks import admission, cluster_speed
from benchmarks.loading import Pace
from benchmarks.processes import Framework
from benchmarks.report import describe_machine, make_markdown_table, make_plain_table
from benchmarks.scenarios import SCENARIOS, Result, run_once

ORIGINAL = "kopf[uvloop]==1.45.2"

_INSTALLATION_TIMEOUT = 600.0

_LOCAL_SCENARIOS = (admission.TITLE, cluster_speed.TITLE)
"""What is always measured on the local cluster."""

_FOREIGN_SLOWNESS = 3
"""How many times longer it may take on a cluster that is not local."""


def main() -> int:
    options = _parse_options()
    frameworks = [
        Framework("kopf", pathlib.Path(sys.executable)),
        Framework("original", _provide_original(options.original)),
    ]
    machine = describe_machine(frameworks)
    if options.kubeconfig is not None:
        machine += f"\nmeasured on the cluster of KUBECONFIG={options.kubeconfig}"
    print(machine, flush=True)
    results, failures = asyncio.run(_measure(options, frameworks))
    if results:
        print(f"\n{make_plain_table(results)}\n\n{make_markdown_table(results)}")
    bursts: list[admission.Result] = []
    if admission.TITLE in options.scenarios:
        bursts = asyncio.run(admission.measure(frameworks))
        failures += [f"{burst.errors} reviews by {burst.server}" for burst in bursts if burst.errors]
        print(f"\n{admission.make_table(bursts)}")
    properties: list[cluster_speed.Result] = []
    if cluster_speed.TITLE in options.scenarios:
        properties = asyncio.run(cluster_speed.measure())
        failures += [f"{item.title} of the local cluster" for item in properties if not item.is_good]
        print(f"\n{cluster_speed.make_table(properties)}")
    if options.json is not None:
        measured: list[Result | admission.Result | cluster_speed.Result] = [*results, *bursts, *properties]
        records = [dataclasses.asdict(item) for item in measured]
        content = {"machine": machine, "results": records}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000", help="how many objects (default: %(default)s)")
    parser.add_argument("--scenarios", help=f"which of: {','.join([*SCENARIOS, *_LOCAL_SCENARIOS])}; all by default")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how many alternating rounds for up to 1,000 objects; larger sizes are run once (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="the same as --sizes 300 --rounds 1")
    parser.add_argument("--rate", type=float, default=5000, help="objects per second, at most (default: %(default)s)")
    parser.add_argument(
        "--in-flight", type=int, default=50, help="how many objects can be not handled at once (default: %(default)s)"
    )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument(
        "--original",
        type=pathlib.Path,
        default=pathlib.Path(f".venv-original-{version}"),
        help="the environment of the original framework, made if absent (default: %(default)s)",
    )
    parser.add_argument("--json", type=pathlib.Path, help="where to write all the results")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.rounds = "300", 1
    options.sizes = [int(size) for size in options.sizes.split(",")]
    options.kubeconfig = os.environ.get("KUBECONFIG") or None
    default = [*SCENARIOS, *([] if options.kubeconfig else _LOCAL_SCENARIOS)]
    options.scenarios = default if options.scenarios is None else options.scenarios.split(",")
    if unknown := set(options.scenarios) - {*SCENARIOS, *_LOCAL_SCENARIOS}:
        parser.error(f"no such scenarios: {', '.join(sorted(unknown))}; there are: {', '.join(SCENARIOS)}")
    return options


def _provide_original(environment: pathlib.Path) -> pathlib.Path:
    """Install the original framework to its own virtual environment, unless it is there already."""
    python = environment.absolute() / "bin" / "python"
    if not python.exists():
        print(f"Installing {ORIGINAL} to {environment}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=_INSTALLATION_TIMEOUT)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ORIGINAL]
    subprocess.run(pip, check=True, timeout=_INSTALLATION_TIMEOUT)
    return python


async def _measure(options: argparse.Namespace, frameworks: list[Framework]) -> tuple[list[Result], list[str]]:
    results: list[Result] = []
    failures: list[str] = []
    pace = Pace(options.rate, options.in_flight)
    scenarios = [key for key in options.scenarios if key in SCENARIOS]
    for size, key in itertools.product(options.sizes, scenarios):
        for number, framework in itertools.product(range(options.rounds if size <= 1000 else 1), frameworks):
            limit = SCENARIOS[key].limit
            if framework.name == "original" and limit is not None and size > limit:
                continue
            title = f"{SCENARIOS[key].title}, {size} objects, {framework.name}, round {number + 1}"
            try:
                timeout = (120 + size * 0.15) * (1 if options.kubeconfig is None else _FOREIGN_SLOWNESS)
                result = await run_once(key, size, framework, pace, timeout=timeout, kubeconfig=options.kubeconfig)
            except Exception as e:
                failures.append(f"{title}: {_explain(e)}")
                print(failures[-1], flush=True)
            else:
                results.append(result)
                print(f"{title}: {_summarize(result)}", flush=True)
    return results, failures


def _summarize(result: Result) -> str:
    parts = [
        f"{name}: {cost.cpu:.2f} ms, {cost.memory:.1f} KiB, p50 {cost.p50:.0f} ms, p99 {cost.p99:.0f} ms, "
        f"{cost.duration:.0f} s, calls {_format(cost.calls)}, cluster {_format(cost.cluster_cpu)} ms"
        for name, cost in (("calm", result.calm), ("busy", result.busy))
        if cost is not None
    ]
    return "; ".join(parts)


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _explain(error: BaseException) -> str:
    causes = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    parts = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), *map(_explain, causes)]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
