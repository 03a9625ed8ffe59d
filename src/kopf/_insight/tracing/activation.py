"""Activation of traces: they are made only if OpenTelemetry is configured."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kopf._settings.settings import TracingSettings
from kopf._values.operator_error import OperatorError
from kopf._values.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)


class MissingTracingLibraryError(OperatorError):
    """The traces are turned on, but their library is not installed."""


def make_tracer(settings: TracingSettings) -> Tracer | None:
    """
    Get the tracer of the framework; return ``None`` if OpenTelemetry is not configured, and traces are not turned on.

    Raises :class:`MissingTracingLibraryError` if traces are turned on, but the library is not installed.
    """
    try:
        from opentelemetry import trace
    except ImportError as e:
        if not settings.enabled:
            return None
        raise MissingTracingLibraryError(
            "The traces need the library opentelemetry-api, which is not installed. To install it: "
            "pip install 'kopf[tracing]'"
        ) from e
    nobody = trace.ProxyTracerProvider, trace.NoOpTracerProvider  # the process has not configured it
    if settings.provider is None and isinstance(trace.get_tracer_provider(), nobody):
        if not settings.enabled:
            return None
        logger.warning(
            "Tracing is on, but the traces go nowhere: OpenTelemetry is not configured. Either run the operator with "
            "opentelemetry-instrument, or set a tracer provider in a startup handler."
        )
    return trace.get_tracer("kopf", __version__, settings.provider)
