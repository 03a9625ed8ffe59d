"""Resource versions: the order of two states of a resource, where the server guarantees such an order."""

from __future__ import annotations


def is_newer(version: str, other: str) -> bool:
    """Compare two versions of one resource in the way of Kubernetes: as integers of any length."""
    return (len(version), version) > (len(other), other)
