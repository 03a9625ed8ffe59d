"""Kubernetes events: what is posted about the objects, how often, and by whom."""
