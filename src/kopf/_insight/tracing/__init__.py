"""Traces: what belongs together, and what has led to what: for collectors of OpenTelemetry."""
