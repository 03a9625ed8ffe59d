"""Insight: what an operator does, for those who look at it: metrics, traces, explanations, the console."""
