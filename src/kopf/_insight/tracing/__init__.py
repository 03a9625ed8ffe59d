"""Traces of the operator for OpenTelemetry: spans, and links to their causes."""
