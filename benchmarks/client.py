"""
Measure what one API request takes, by our client and by others: CPU of this process, and latency.

    .venv/bin/python -m benchmarks.client
    .venv/bin/python -m benchmarks.client --clients ours,bare,httpx --json results.json

There are two servers, in processes of their own: one that answers everything with the same response, over plain TCP,
so that nothing but the client is measured; and the local cluster, over TLS, as in life. In each round, all the clients
have their turns, with the same number of requests; for each of them, the best round counts, as anything else on the
machine only makes it worse. What is not installed is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import msgspec
import yaml

from benchmarks.bare_client import Pool
from benchmarks.loading import PATH, make_widget
from benchmarks.processes import running_cluster
from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings

REQUESTS = 200
ROUNDS = 40
CONCURRENCY = (1, 50)
CONTENT_TYPE = "application/merge-patch+json"
BODY = msgspec.json.encode({"metadata": {"annotations": {"example.com/annotation": "x" * 500}}})

Send = Callable[[], Awaitable[bytes]]
"""Makes one request of the same kind, and gives the content of the response."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the requests go, and with which credentials."""

    url: str
    token: str
    authority: str | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}

    def make_context(self) -> ssl.SSLContext | None:
        return None if self.authority is None else ssl.create_default_context(cadata=self.authority)


@dataclasses.dataclass(frozen=True)
class Result:
    """What one request has taken, in microseconds."""

    server: str
    concurrency: int
    client: str
    cpu: float
    p50: float
    p99: float


@contextlib.asynccontextmanager
async def use_ours(place: Place, path: str) -> AsyncIterator[Send]:
    """Use the client of the framework."""
    settings = OperatorSettings()
    vault = Vault(settings)
    vault.populate([ConnectionInfo(server=place.url, token=place.token, ca_data=place.authority)])
    api = APIClient(vault, settings)
    try:
        yield lambda: api.patch(path, payload=BODY)
    finally:
        await vault.close()


@contextlib.asynccontextmanager
async def use_bare(place: Place, path: str) -> AsyncIterator[Send]:
    """Use ``aiohttp`` as its documentation says."""
    context = place.make_context()
    connector = aiohttp.TCPConnector(limit=0, ssl=True if context is None else context)
    async with aiohttp.ClientSession(place.url, connector=connector, headers=place.headers) as session:

        async def send() -> bytes:
            async with session.patch(path, data=BODY, headers={"Content-Type": CONTENT_TYPE}) as response:
                response.raise_for_status()
                return await response.read()

        yield send


@contextlib.asynccontextmanager
async def use_httptools(place: Place, path: str) -> AsyncIterator[Send]:
    """Use nothing but a parser, see ``bare_client.py``."""
    headers = {**place.headers, "Content-Type": CONTENT_TYPE}
    async with Pool.opened(place.url, headers, place.make_context()) as pool:
        yield lambda: pool.request("PATCH", path, BODY)


@contextlib.asynccontextmanager
async def use_httpx(place: Place, path: str) -> AsyncIterator[Send]:
    """Use ``httpx`` on ``httpcore``."""
    httpx = importlib.import_module("httpx")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {**place.headers, "Content-Type": CONTENT_TYPE}
    verify = place.make_context() or False
    async with httpx.AsyncClient(base_url=place.url, headers=headers, limits=limits, verify=verify) as client:

        async def send() -> bytes:
            response = await client.patch(path, content=BODY)
            response.raise_for_status()
            return bytes(response.content)

        yield send


@contextlib.asynccontextmanager
async def use_niquests(place: Place, path: str) -> AsyncIterator[Send]:
    """Use ``niquests`` on ``urllib3-future``."""
    niquests = importlib.import_module("niquests")
    headers = {**place.headers, "Content-Type": CONTENT_TYPE}
    async with niquests.AsyncSession(pool_maxsize=100, disable_http2=True, disable_http3=True) as session:
        with _as_file(place.authority) as verify:

            async def send() -> bytes:
                response = await session.patch(place.url + path, data=BODY, headers=headers, verify=verify)
                response.raise_for_status()
                return bytes(response.content)

            yield send


@contextlib.asynccontextmanager
async def use_curl(place: Place, path: str) -> AsyncIterator[Send]:
    """Use ``curl_cffi`` on ``libcurl``."""
    requests = importlib.import_module("curl_cffi.requests")
    headers = {**place.headers, "Content-Type": CONTENT_TYPE}
    with _as_file(place.authority) as verify:
        async with requests.AsyncSession(max_clients=100, headers=headers, verify=verify, http_version="v1") as session:

            async def send() -> bytes:
                response = await session.patch(place.url + path, data=BODY)
                response.raise_for_status()
                return bytes(response.content)

            yield send


CLIENTS: Mapping[str, tuple[str, Callable[[Place, str], contextlib.AbstractAsyncContextManager[Send]]]] = {
    "ours": ("kopf", use_ours),
    "bare": ("aiohttp", use_bare),
    "httptools": ("httptools", use_httptools),
    "httpx": ("httpx", use_httpx),
    "niquests": ("niquests", use_niquests),
    "curl": ("curl_cffi", use_curl),
}
"""What can be measured: which library it needs, and how it is used."""


@contextlib.contextmanager
def _as_file(authority: str | None) -> Any:
    if authority is None:
        yield False
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem", prefix="kopf-benchmark-") as file:
        file.write(authority)
        file.flush()
        yield file.name


# --- the server with one answer to everything ---

_ANSWER = msgspec.json.encode(make_widget("canned", "created", handled=True))
_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-cache, private\r\n"
    b"Audit-Id: 3f0a3b1c-0d3c-4d53-9b76-0e4d1a9f6b5e\r\nDate: Sun, 22 Nov 2026 12:00:00 GMT\r\n"
    b"Content-Length: " + str(len(_ANSWER)).encode() + b"\r\n\r\n" + _ANSWER
)


class CannedAnswers(asyncio.Protocol):
    """Answers when the whole request has come: they have all the same length, as the clients are told it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        _, found, body = self._received.partition(b"\r\n\r\n")
        if found and len(body) >= len(BODY):
            self._received = body[len(BODY) :]
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(_RESPONSE)


async def serve_canned_answers() -> None:
    """Serve until the standard input is closed; the port is printed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(CannedAnswers, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextlib.asynccontextmanager
async def canned_answers() -> AsyncIterator[Place]:
    """Run the server with one answer in a process of its own."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.client", "--serve", stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Place(f"http://127.0.0.1:{int(await process.stdout.readline())}", "some-token")
    finally:
        process.stdin.close()
        await process.wait()


@contextlib.asynccontextmanager
async def local_cluster() -> AsyncIterator[Place]:
    """Run the local cluster, with the object to be patched."""
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as directory:
        kubeconfig = pathlib.Path(directory) / "kubeconfig.yaml"
        async with running_cluster(kubeconfig):
            config = yaml.safe_load(kubeconfig.read_text())
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            place = Place(cluster["server"], user["token"], authority)
            connector = aiohttp.TCPConnector(ssl=place.make_context() or True)
            async with aiohttp.ClientSession(place.url, connector=connector, headers=place.headers) as session:
                await session.post(PATH, json=make_widget("patched", "created"))
            yield place


# --- measuring ---


async def measure(
    server: str, place: Place, concurrency: int, names: list[str], count: int, rounds: int = ROUNDS
) -> list[Result]:
    """Let all the clients make their requests in turn, several times."""
    best: dict[str, tuple[float, list[float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        senders = {}
        for name in names:
            senders[name] = await stack.enter_async_context(CLIENTS[name][1](place, f"{PATH}/patched"))
            await _make_requests(senders[name], concurrency * 3, concurrency)
        for _ in range(rounds):
            for name, send in senders.items():
                started = time.process_time()
                latencies = await _make_requests(send, count, concurrency)
                cpu = time.process_time() - started
                if name not in best or cpu < best[name][0]:
                    best[name] = cpu, latencies
    return [
        Result(server, concurrency, name, cpu / count * 1e6, *(1e6 * cut for cut in _get_percentiles(latencies)))
        for name, (cpu, latencies) in best.items()
    ]


async def _make_requests(send: Send, count: int, concurrency: int) -> list[float]:
    latencies: list[float] = []

    async def work() -> None:
        for _ in range(count // concurrency):
            started = time.perf_counter()
            content = await send()
            latencies.append(time.perf_counter() - started)
            if not content.startswith(b"{"):
                raise RuntimeError(f"It is not the response: {content[:100]!r}")

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return latencies


def _get_percentiles(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


async def measure_all(names: list[str], count: int, rounds: int) -> list[Result]:
    results: list[Result] = []
    async with canned_answers() as plain, local_cluster() as cluster:
        for server, place in {"plain": plain, "cluster over TLS": cluster}.items():
            for concurrency in CONCURRENCY:
                results += await measure(server, place, concurrency, names, count, rounds)
    return results


def make_table(results: list[Result]) -> str:
    """Make a table in Markdown; each client is compared to the bare ``aiohttp``."""
    rows = [
        "| server | at once | client | CPU µs | of bare aiohttp | p50 ms | p99 ms |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for item in results:
        [base] = [
            other.cpu
            for other in results
            if (other.server, other.concurrency, other.client) == (item.server, item.concurrency, "bare")
        ]
        rows.append(
            f"| {item.server} | {item.concurrency} | {item.client} | {item.cpu:.0f} | {item.cpu / base:.2f} "
            f"| {item.p50 / 1000:.2f} | {item.p99 / 1000:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    known = [name for name, (library, _) in CLIENTS.items() if importlib.util.find_spec(library) is not None]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--clients", default="ours,bare", help=f"of: {','.join(known)} (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="in each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how many turns (default: %(default)s)")
    parser.add_argument("--uvloop", action="store_true", help="use uvloop, if it is installed")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the results")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    factory = importlib.import_module("uvloop").new_event_loop if options.uvloop else None
    with asyncio.Runner(loop_factory=factory) as runner:
        if options.serve:
            runner.run(serve_canned_answers())
            return
        results = runner.run(measure_all(options.clients.split(","), options.requests, options.rounds))
    loop = "uvloop" if options.uvloop else "asyncio"
    versions = f"Python {sys.version.split()[0]}, aiohttp {aiohttp.__version__}, {loop}, {os.cpu_count()} cores"
    print(f"{versions}\n\n{make_table(results)}")
    if options.json is not None:
        options.json.write_text(json.dumps([dataclasses.asdict(item) for item in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
