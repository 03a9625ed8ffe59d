"""Resource versions: which of two states of a resource is newer, where the server guarantees that it can be told."""

from __future__ import annotations


def is_newer(version: str, other: str) -> bool:
    """Compare two versions of one resource, as Kubernetes does: as integers of arbitrary length."""
    return (len(version), version) > (len(other), other)
