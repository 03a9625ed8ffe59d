"""
Measure the admission: a burst of reviews over HTTPS, as many at once as API servers would send.

    python -m benchmarks.admission --reviews 5000 --in-flight 64

The reviews go straight to the webhook server of the operator, over kept connections, so that nothing else is measured;
and the same to a bare HTTPS server, so that it is seen how much of it is the price of HTTPS itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import dataclasses
import json
import pathlib
import socket
import ssl
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp

from benchmarks.measuring import get_percentiles
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_cluster, running_operator
from benchmarks.report import describe_machine
from kopf import WebhookServer

TITLE = "admission"
REVIEWS = 5000
IN_FLIGHT = 64
BARE = "bare HTTPS"
_WARM_UP = 500
_START_TIMEOUT = 60.0
_REVIEW: dict[str, Any] = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "",
        "kind": {"group": "bench.example.com", "version": "v1", "kind": "Widget"},
        "resource": {"group": "bench.example.com", "version": "v1", "resource": "widgets"},
        "requestKind": {"group": "bench.example.com", "version": "v1", "kind": "Widget"},
        "requestResource": {"group": "bench.example.com", "version": "v1", "resource": "widgets"},
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": {
            "apiVersion": "bench.example.com/v1",
            "kind": "Widget",
            "metadata": {"namespace": "default", "labels": {"tier": "backend"}, "annotations": {"note": "x" * 200}},
            "spec": {"phase": "created", "items": [{"name": f"item-{n}", "value": n} for n in range(20)]},
        },
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    },
}


@dataclasses.dataclass(frozen=True)
class Result:
    """What a burst has taken."""

    server: str
    webhook: str
    reviews: int
    errors: int
    cpu: float
    """CPU of the server's process, in milliseconds per review."""
    p50: float
    """In milliseconds."""
    p99: float
    duration: float
    """In seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission", description=__doc__)
    parser.add_argument("--reviews", type=int, default=REVIEWS, help="how many reviews (default: %(default)s)")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="how many at once (default: %(default)s)")
    parser.add_argument("--original", type=pathlib.Path, help="the environment of the original framework, to compare")
    parser.add_argument("--json", type=pathlib.Path, help="where to write all the results")
    options = parser.parse_args()
    frameworks = [Framework("kopf", pathlib.Path(sys.executable))]
    if options.original is not None:
        frameworks.append(Framework("original", options.original.absolute() / "bin" / "python"))
    machine = describe_machine(frameworks)
    print(machine, flush=True)
    results = asyncio.run(measure(frameworks, options.reviews, options.in_flight))
    print(f"\n{make_table(results)}")
    if options.json is not None:
        content = {"machine": machine, "results": [dataclasses.asdict(result) for result in results]}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return 1 if any(result.errors for result in results) else 0


async def measure(frameworks: Sequence[Framework], reviews: int = REVIEWS, in_flight: int = IN_FLIGHT) -> list[Result]:
    """Measure the bare server, then the operators under all the frameworks."""
    results = []
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as name:
        directory = pathlib.Path(name)
        certificate, key = WebhookServer.build_certificate(["127.0.0.1"])
        (directory / "server.pem").write_bytes(certificate)
        (directory / "server.key").write_bytes(key)
        async with _running_bare_server(directory) as meter:
            results.append(await _burst(BARE, "any", meter, directory, reviews, in_flight))
        for framework in frameworks:
            async with _running_operator(framework, directory) as meter:
                results += [
                    await _burst(framework.name, webhook, meter, directory, reviews, in_flight)
                    for webhook in ("validate_fn", "mutate_fn")
                ]
    return results


@contextlib.asynccontextmanager
async def _running_bare_server(directory: pathlib.Path) -> AsyncIterator[Meter]:
    _choose_port(directory)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.bare_webhooks", str(directory))
    try:
        yield Meter(process.pid)
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def _running_operator(framework: Framework, directory: pathlib.Path) -> AsyncIterator[Meter]:
    _choose_port(directory)
    kubeconfig = directory / "kubeconfig.yaml"
    pipe = Pipe()
    file, log = OPERATORS / "admission.py", directory / "operator.log"
    async with (
        pipe.reader(),
        running_cluster(kubeconfig),
        running_operator(framework, file, kubeconfig=kubeconfig, pipe=pipe, log=log) as meter,
    ):
        yield meter


def _choose_port(directory: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        (directory / "port").write_text(str(sock.getsockname()[1]))


async def _burst(
    server: str, webhook: str, meter: Meter, directory: pathlib.Path, reviews: int, in_flight: int
) -> Result:
    context = ssl.create_default_context(cafile=str(directory / "server.pem"))
    connector = aiohttp.TCPConnector(ssl=context, limit=in_flight)
    url = f"https://127.0.0.1:{(directory / 'port').read_text()}/{webhook}?timeout=30s"
    async with aiohttp.ClientSession(connector=connector) as session:
        await _wait_until_ready(session, url)
        await _send(session, url, _WARM_UP, in_flight)
        before, started = meter.cpu, time.perf_counter()
        latencies, errors = await _send(session, url, reviews, in_flight)
        duration, cpu = time.perf_counter() - started, meter.cpu - before
    p50, p99 = get_percentiles(latencies)
    result = Result(server, webhook, reviews, errors, cpu * 1000 / reviews, p50, p99, duration)
    print(result, flush=True)
    return result


async def _wait_until_ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(_START_TIMEOUT):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if await _ask(session, url, "ready"):
                    return
            await asyncio.sleep(0.1)


async def _send(session: aiohttp.ClientSession, url: str, reviews: int, in_flight: int) -> tuple[list[float], int]:
    """Send that many reviews; get the latencies in seconds, and the number of those that are not answered well."""
    names = iter([f"widget-{number:06}" for number in range(reviews)])
    latencies: list[float] = []
    outcomes: list[bool] = []

    async def work() -> None:
        for name in names:
            started = time.perf_counter()
            outcomes.append(await _ask(session, url, name))
            latencies.append(time.perf_counter() - started)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
    return latencies, outcomes.count(False)


async def _ask(session: aiohttp.ClientSession, url: str, name: str) -> bool:
    review = copy.deepcopy(_REVIEW)
    review["request"] |= {"uid": str(uuid.uuid4()), "name": name}
    review["request"]["object"]["metadata"]["name"] = name
    async with session.post(url, json=review) as response:
        if response.status != 200:
            return False
        answer: Mapping[str, Any] = await response.json()
    return bool(answer["response"]["uid"] == review["request"]["uid"] and answer["response"]["allowed"])


def make_table(results: Sequence[Result]) -> str:
    """Make a table in Markdown; the price of HTTPS itself is in the first row."""
    bare = results[0].cpu
    rows = [
        "| server | webhook | CPU ms/review | beyond HTTPS | p50 ms | p99 ms | reviews/s | errors |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {item.server} | {item.webhook} | {item.cpu:.2f} | {item.cpu - bare:.2f} | {item.p50:.1f} | {item.p99:.1f} "
        f"| {item.reviews / item.duration:.0f} | {item.errors} |"
        for item in results
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
