"""Metrics: what an operator has done is counted, what it is about is measured, for Prometheus and the like."""
