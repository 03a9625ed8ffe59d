"""Replaying: an operator that was recorded runs again, with no cluster, and is compared to what it was."""
