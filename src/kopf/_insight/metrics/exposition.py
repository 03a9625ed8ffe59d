"""
The server of the metrics, in any format that the scraper accepts.

It serves the whole registry: the metrics of the operator, of the process, and the users' own ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from aiohttp import web

from kopf._serving.threaded_server import Answer
from kopf._settings.settings import MetricsSettings
from kopf._settings.threads import HandlerThreads
from kopf._values.operator_error import OperatorError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kopf._insight.metrics.operator_metrics import Metrics


_MAX_SCRAPES = 2
"""How many scrapes are answered at once; the others wait."""


class MissingMetricsLibraryError(OperatorError):
    """The metrics are turned on, but their library is not installed."""


def check_library() -> None:
    """Check that the library is installed. Raises :class:`MissingMetricsLibraryError` if it is not."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as e:
        raise MissingMetricsLibraryError(
            "The metrics need the library prometheus-client, which is not installed. To install it: "
            "pip install 'kopf[metrics]'"
        ) from e


@contextlib.contextmanager
def collecting(metrics: Metrics, settings: MetricsSettings) -> Iterator[Answer]:
    """Have the metrics in the registry inside of the block. Yield a function that answers scrapes of the registry."""
    from prometheus_client import REGISTRY

    from kopf._insight.metrics.collector import get_collector

    registry = REGISTRY if settings.registry is None else settings.registry
    collector = get_collector(registry)
    collector.add(metrics)
    # The collectors of users can be slow or hang: neither the health nor the exit of the operator waits for them.
    threads = HandlerThreads(_MAX_SCRAPES, name="kopf-scrape")
    try:
        yield functools.partial(_answer, registry, threads)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        collector.remove(metrics)


async def _answer(registry: CollectorRegistry, threads: Executor, request: web.BaseRequest) -> web.StreamResponse:
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    headers = {"Cache-Control": "no-store", "Content-Type": content_type}
    body = await asyncio.get_running_loop().run_in_executor(threads, encode, registry)
    response = web.Response(body=body, headers=headers)
    response.enable_compression()
    return response
