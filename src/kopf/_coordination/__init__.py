"""Coordination: which of several operators works now."""
