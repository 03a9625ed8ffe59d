"""Whether there are traces at all."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from kopf._insight.tracing.activation import MissingTracingLibraryError, make_tracer
from kopf._settings.settings import TracingSettings


@pytest.mark.parametrize(
    ("enabled", "provider", "current", "is_traced", "is_told"),
    [
        (None, None, trace.NoOpTracerProvider(), False, False),
        (None, None, TracerProvider(shutdown_on_exit=False), True, False),
        (None, TracerProvider(shutdown_on_exit=False), trace.NoOpTracerProvider(), True, False),
        (True, None, trace.NoOpTracerProvider(), True, True),
        (True, None, TracerProvider(shutdown_on_exit=False), True, False),
    ],
)
def test_traces_need_somebody_who_takes_them(
    enabled: bool | None,
    provider: Any,
    current: Any,
    is_traced: bool,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: current)
    tracer = make_tracer(TracingSettings(enabled=enabled, provider=provider))
    assert (tracer is not None) == is_traced
    assert any(record.levelno == logging.WARNING for record in caplog.records) == is_told


@pytest.mark.parametrize("enabled", [None, True])
def test_without_the_library(enabled: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    if not enabled:
        assert make_tracer(TracingSettings(enabled=enabled)) is None
        return
    with pytest.raises(MissingTracingLibraryError, match="which is not installed"):
        make_tracer(TracingSettings(enabled=enabled))
