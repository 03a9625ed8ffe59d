"""Activation: whether there is anybody who takes the traces."""

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
    """The traces are wanted, but there is no library for them."""


def make_tracer(settings: TracingSettings) -> Tracer | None:
    """
    Get the tracer of the framework; ``None`` if nobody has configured where the traces go, and they are not asked for.

    Raises :class:`MissingTracingLibraryError` if they are asked for, and there is no library.
    """
    try:
        from opentelemetry import trace
    except ImportError as e:
        if not settings.enabled:
            return None
        raise MissingTracingLibraryError(
            "The traces need the library opentelemetry-api, which is not installed. To install it: "
            "pip install 'kopf[tracing]>=2'"
        ) from e
    nobody = trace.ProxyTracerProvider, trace.NoOpTracerProvider  # nobody has configured anything for the process
    if settings.provider is None and isinstance(trace.get_tracer_provider(), nobody):
        if not settings.enabled:
            return None
        logger.warning(
            "The traces are switched on, but go nowhere: OpenTelemetry is not configured. Either run the operator by "
            "opentelemetry-instrument, or set a tracer provider in a startup handler."
        )
    return trace.get_tracer("kopf", __version__, settings.provider)
