"""What is served to those who look at the operator: at which ports, of two that can be one."""

from __future__ import annotations

import pytest

from kopf._operator.insight import EndpointClashError, _is_one_server
from kopf._serving.endpoints import parse_endpoint


@pytest.mark.parametrize(
    ("health", "metrics", "expected"),
    [
        ("http://0.0.0.0:8080/healthz", "http://0.0.0.0:8080/metrics", True),
        ("http://127.0.0.1:8080/healthz", "http://127.0.0.1:8080/metrics", True),
        ("http://127.0.0.1:8080/healthz", "http://127.0.0.2:8080/healthz", False),
        ("http://0.0.0.0:8080/healthz", "http://0.0.0.0:8081/healthz", False),
        ("http://0.0.0.0:0/healthz", "http://0.0.0.0:0/healthz", False),
    ],
)
def test_ports(health: str, metrics: str, expected: bool) -> None:
    assert _is_one_server(parse_endpoint(health), parse_endpoint(metrics)) is expected


@pytest.mark.parametrize(
    ("health", "metrics", "error"),
    [
        ("http://0.0.0.0:8080/x", "http://0.0.0.0:8080/x", "change one of the paths"),
        ("http://0.0.0.0:8080/healthz", "http://127.0.0.1:8080/metrics", "the same host"),
        ("http://127.0.0.1:8080/healthz", "http://[::]:8080/metrics", "the same host"),
        ("http://:8080/healthz", "http://127.0.0.1:8080/metrics", "the same host"),
    ],
)
def test_clashes(health: str, metrics: str, error: str) -> None:
    with pytest.raises(EndpointClashError, match=error):
        _is_one_server(parse_endpoint(health), parse_endpoint(metrics))
