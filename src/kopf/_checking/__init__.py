"""Checks of an operator without a cluster: of its code, its declarations, its definitions."""
