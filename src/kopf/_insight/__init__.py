"""Insight into an operator: metrics, traces, explanations, the console."""
