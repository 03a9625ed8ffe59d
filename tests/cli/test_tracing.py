"""Traces of a real process: they reach a collector over OTLP, and the logs know of them."""

from __future__ import annotations

import gzip
import http.server
import json
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kopf_cluster import LocalCluster
from tests.cli.conftest import Starter
from tests.patience import PATIENCE

HANDLERS = """
import sys
import kopf

@kopf.on.create("kopfexamples", id="create_fn")
def create_fn(spec, logger, **_):
    logger.info("It works.")
    return {"loaded": sorted(name for name in sys.modules if name.startswith(("opentelemetry", "kopf._insight")))}
"""

#: As opentelemetry-instrument and other tools do it before the operator is started.
SDK = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""

OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj"}, "spec": {"key": "my-secret"}}


class Collector(http.server.BaseHTTPRequestHandler):
    """A stand-in for a collector: it understands OTLP over HTTP, and keeps the spans."""

    spans: list[Any]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        request = ExportTraceServiceRequest.FromString(content)
        self.spans += [
            span
            for item in request.resource_spans
            for scope in item.scope_spans
            if scope.scope.name == "kopf"
            for span in scope.spans
        ]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    spans: list[Any] = []
    handler = type("Handler", (Collector,), {"spans": spans})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()
        thread.join()


def wait_for_status(cluster: LocalCluster) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        status: dict[str, Any] = cluster.get("kopfexamples", "obj").get("status", {})
        if "create_fn" in status:
            return status
        time.sleep(0.05)
    raise AssertionError("It was never handled.")


def test_traces_reach_a_collector(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    collector: tuple[str, list[Any]],
) -> None:
    url, spans = collector
    (tmp_path / "handlers.py").write_text(HANDLERS)
    (tmp_path / "sdk.py").write_text(SDK)
    arguments = ["run", "-A", "--standalone", "--log-format=json", "sdk.py", "handlers.py"]
    with start(
        *arguments, kubeconfig=cluster.kubeconfig, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="100"
    ) as process:
        process.wait_for("Initial authentication has finished")
        cluster.apply(OBJ)
        wait_for_status(cluster)
        process.wait_for("Creation is processed")
        assert process.stop() == 0
        lines = [json.loads(line) for line in process.output.splitlines()]
    by_name = {span.name: span for span in spans}
    names = {"reconcile kopfexamples.kopf.dev", "queue", "handler create_fn", "PATCH kopfexamples/status"}
    assert names <= by_name.keys()
    root, attempt = by_name["reconcile kopfexamples.kopf.dev"], by_name["handler create_fn"]
    assert attempt.parent_span_id == root.span_id
    assert {by_name[name].trace_id for name in names} == {root.trace_id}
    assert "my-secret" not in str(spans)
    said = next(line for line in lines if line["message"] == "It works.")
    assert (said["trace_id"], said["span_id"]) == (attempt.trace_id.hex(), attempt.span_id.hex())
    assert not any("trace_id" in line for line in lines if "authentication" in line["message"])


@pytest.mark.parametrize("forge", [None])  # nothing is imported before
def test_nothing_is_traced_by_default(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
) -> None:
    """Although the library is there."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    arguments = ["run", "-A", "--standalone", "--log-format=json", "handlers.py"]
    with start(*arguments, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Initial authentication has finished")
        cluster.apply(OBJ)
        assert wait_for_status(cluster)["create_fn"]["loaded"] == []
        assert process.stop() == 0
        assert "trace_id" not in process.output


SETTINGS = """
import sys
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.tracing.enabled = True
    {more}
"""


def test_missing_library(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text(SETTINGS.format(more="sys.modules['opentelemetry'] = None"))
    with start("run", "-A", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for(r"The operator cannot go on: The traces need .* pip install 'kopf\[tracing\]")
        assert process.wait() == 1


def test_traces_to_nowhere(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text(SETTINGS.format(more="pass"))
    with start("run", "-A", "--standalone", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Tracing is on, but the traces go nowhere: OpenTelemetry is not configured")
        assert process.stop() == 0
