"""The dashboard and the alerts: they are about what is exposed, and a real Prometheus has data for them."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from itertools import filterfalse
from typing import Any

import prometheus_client
import pytest
import yaml

from kopf._controller.observer import Observers
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.collector import get_collector
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._settings.settings import OperatorSettings
from kopf.testing import LocalCluster
from tests.cli.processes import Process
from tests.downloads import get_prometheus
from tests.examples.conftest import EXAMPLES, wait_until
from tests.insight.metrics.exposed import Exposed
from tests.patience import PATIENCE
from tests.ports import find_free_port

EXAMPLE, ADMISSION = EXAMPLES / "monitoring", EXAMPLES / "admission"

#: What dashboards ask that were made for operators with controller-runtime, and with the metrics of client-go.
QUERIES_OF_CONTROLLER_RUNTIME = [
    'sum(rate(controller_runtime_reconcile_total{job="$job"}[5m])) by (instance, controller)',
    'sum(rate(controller_runtime_reconcile_total{job="$job", result="success"}[5m])) by (controller)',
    'sum(rate(controller_runtime_reconcile_errors_total{job="$job"}[5m])) by (instance, controller)',
    'sum(rate(controller_runtime_terminal_reconcile_errors_total{job="$job"}[5m])) by (instance, controller)',
    'histogram_quantile(0.9, sum(rate(controller_runtime_reconcile_time_seconds_bucket{job="$job"}[5m]))'
    " by (controller, le))",
    'controller_runtime_active_workers{job="$job"} / controller_runtime_max_concurrent_reconciles{job="$job"}',
    'sum(workqueue_depth{job="$job"}) by (instance, name)',
    'sum(rate(workqueue_adds_total{job="$job"}[5m])) by (instance, name)',
    'sum(rate(workqueue_retries_total{job="$job"}[5m])) by (instance, name)',
    'histogram_quantile(0.99, sum(rate(workqueue_queue_duration_seconds_bucket{job="$job"}[5m]))'
    " by (instance, name, le))",
    'histogram_quantile(0.99, sum(rate(workqueue_work_duration_seconds_bucket{job="$job"}[5m])) by (controller, le))',
    'workqueue_unfinished_work_seconds{job="$job"}',
    'workqueue_longest_running_processor_seconds{job="$job"}',
    'sum(rate(rest_client_requests_total{job="$job", code=~"2.."}[5m])) by (method, host)',
    'histogram_quantile(0.99, sum(rate(rest_client_request_duration_seconds_bucket{job="$job"}[5m])) by (verb, le))',
    'leader_election_master_status{job="$job"}',
    'rate(process_cpu_seconds_total{job="$job"}[5m])',
    'process_resident_memory_bytes{job="$job"}',
    'sum(rate(controller_runtime_webhook_requests_total{job="$job"}[5m])) by (webhook, code)',
    'controller_runtime_webhook_requests_in_flight{job="$job"}',
]

HANDLERS = """
import kopf

@kopf.on.create("kopfexamples")
async def create_fn(spec, **_):
    if spec.get("duration") == "7m":
        raise kopf.TemporaryError("not yet", delay=0.1)
    if spec.get("duration") == "8m":
        raise kopf.PermanentError("never")
    return {"done": True}

@kopf.index("kopfexamples")
async def by_duration(spec, name, **_):
    return {spec.get("duration"): name}

@kopf.daemon("kopfexamples", cancellation_timeout=1)
async def daemon_fn(stopped, **_):
    await stopped.wait()

@kopf.timer("kopfexamples", interval=1)
async def timer_fn(**_):
    pass
"""


def list_dashboard() -> list[str]:
    panels = json.loads((EXAMPLE / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def list_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((EXAMPLE / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def find_names(expression: str) -> set[str]:
    """The names of metrics in the expression."""
    expression = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", expression)
    expression = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", " ", expression)
    return {*re.findall(r"\b[a-z_]\w*\b(?!\s*\()", expression)} - {"and", "or", "unless", "by"}


def test_expressions_are_of_what_is_exposed() -> None:
    """Whether there is a Prometheus or not."""
    registry = prometheus_client.CollectorRegistry()
    get_collector(registry).add(Metrics(Observers(), OperatorRegistry(), OperatorSettings()))
    exposed = Exposed.of(registry)
    suffixes = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    names = {name + suffix for name, type in exposed.families.items() for suffix in suffixes[type]}
    names |= {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
    expressions = [*list_dashboard(), *(rule["expr"] for rule in list_rules()), *QUERIES_OF_CONTROLLER_RUNTIME]
    assert len(expressions) > 50
    for expression in expressions:
        assert find_names(expression), expression
        assert find_names(expression) <= names, expression
    shown = {name for expression in list_dashboard() for name in find_names(expression)}
    unshown = {name for name in exposed.families if not any(item.startswith(name) for item in shown)}
    assert unshown == {
        "workqueue_unfinished_work_seconds",
        "workqueue_work_duration_seconds",
        "controller_runtime_webhook_requests_in_flight",
    }


#: What it takes for each alert, with what the series are from minute to minute.
SERIES = {
    "OperatorDown": ('up{job="operator"}', "1 0x60"),
    "OperatorWatchSilent": ('kopf_watch_last_activity_seconds{job="operator",resource="x"}', "0+60x60"),
    "OperatorRetriesPileUp": ('kopf_handlers_failed{job="operator",handler="x",state="retrying"}', "0+1x60"),
    "OperatorHandlersFailed": ('kopf_handlers_failed{job="operator",handler="x",state="failed"}', "1x60"),
    "OperatorQueueGrows": ('workqueue_depth{job="operator",name="x",controller="x"}', "0+10x60"),
    "OperatorHangs": ('workqueue_longest_running_processor_seconds{job="operator",name="x"}', "3000+60x60"),
    "OperatorEventLoopBlocked": ('kopf_eventloop_lag_seconds{job="operator"}', "3x60"),
    "OperatorApiErrors": ('rest_client_requests_total{job="operator",host="x",code="503"}', "0+10x60"),
}


@pytest.fixture
def promtool() -> str:
    return str(get_prometheus() / "promtool")


def test_alerts(promtool: str, tmp_path: pathlib.Path) -> None:
    """Each fires in its trouble, and in no other one; none of them when all is well."""
    well = [
        {"series": 'up{job="operator"}', "values": "1x60"},
        {"series": 'kopf_eventloop_lag_seconds{job="operator"}', "values": "0.01x60"},
        {"series": 'workqueue_depth{job="operator",name="x",controller="x"}', "values": "3x60"},
        {"series": 'rest_client_requests_total{job="operator",host="x",code="200"}', "values": "0+10x60"},
    ]
    assert {rule["alert"] for rule in list_rules()} == SERIES.keys()
    tests = [
        {
            "interval": "1m",
            "input_series": [item for item in well if item["series"] != series]
            + ([{"series": series, "values": values}] if series else []),
            "promql_expr_test": [
                {
                    "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "50m",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else [],
                }
            ],
        }
        for alert, (series, values) in {**SERIES, "": ("", "")}.items()
    ]
    content = {"rule_files": [str(EXAMPLE / "rules.yaml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(content))
    result = subprocess.run(
        [promtool, "test", "rules", tmp_path / "test.yaml"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def query(tmp_path: pathlib.Path) -> Iterator[Callable[[str], list[Any]]]:
    """A Prometheus that scrapes the port in the file, and answers queries."""
    program = get_prometheus() / "prometheus"
    address = f"127.0.0.1:{find_free_port()}"
    (tmp_path / "targets.json").write_text("[]")
    (tmp_path / "prometheus.yaml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "300ms", "scrape_timeout": "300ms", "evaluation_interval": "1s"},
                "rule_files": [str(EXAMPLE / "rules.yaml")],
                "scrape_configs": [
                    {
                        "job_name": "operator",
                        "file_sd_configs": [{"files": [str(tmp_path / "targets.json")], "refresh_interval": "200ms"}],
                    }
                ],
            }
        )
    )
    command = [
        str(program),
        f"--config.file={tmp_path / 'prometheus.yaml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
    ]

    def query(expression: str) -> list[Any]:
        url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:
            found: list[Any] = json.load(response)["data"]["result"]
            return found

    log = tmp_path / "prometheus.log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield query
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.timeout(300)
def test_real_prometheus(query: Callable[[str], list[Any]], tmp_path: pathlib.Path, port: int) -> None:
    """A working operator is scraped: every query of the dashboard returns data, and those of controller-runtime too."""
    (tmp_path / "handlers.py").write_text((ADMISSION / "handlers.py").read_text() + HANDLERS)
    with LocalCluster() as cluster:
        cluster.apply(ADMISSION / "crd.yaml")
        cluster.faults.inject(verb="patch", resource="kopfexamples", status=503, times=1)
        env = {"KUBECONFIG": str(cluster.kubeconfig)}
        metrics = f"--metrics=http://127.0.0.1:{port}/metrics"
        arguments = ["run", "-A", "--standalone", metrics, "handlers.py"]
        with Process(*arguments, cwd=tmp_path, log=tmp_path / "operator.log", env=env) as operator:
            wait_until(lambda: cluster.audit and "by_duration" in scrape(port))
            wait_until(lambda: is_admitted(cluster))
            (tmp_path / "targets.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"]}]))
            wait_until(lambda: query('up{job="operator"} == 1'))
            for number in range(20):
                cluster.apply(make(f"obj-{number}", f"{number % 9}m"))
            expressions = [*QUERIES_OF_CONTROLLER_RUNTIME, *list_dashboard()]
            pending = [item.replace("$job", "operator").replace("$__rate_interval", "1m") for item in expressions]
            wait_until(lambda: all(map(query, pending)), lambda: [*filterfalse(query, pending)])
            assert not query('ALERTS{alertstate="firing"}')
            total = query('sum(kopf_handler_duration_seconds_count{handler="create_fn",outcome="succeeded"})')
            assert float(total[0]["value"][1]) <= 20
            operator.press_ctrl_c()
            assert operator.wait() == 0
        wait_until(lambda: query('up{job="operator"} == 0'))


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
        text: str = response.read().decode()
        return text


def make(name: str, duration: str) -> dict[str, Any]:
    return {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": name},
        "spec": {"duration": duration},
    }


def is_admitted(cluster: LocalCluster) -> bool:
    """Whether the webhooks are there: what they refuse is refused."""
    try:
        cluster.apply(make("refused", "bad"))
    except Exception as e:
        return "The duration must be" in str(e)
    return False
