"""Kubernetes events about the objects: their reports, their rate limits, and their posting."""
