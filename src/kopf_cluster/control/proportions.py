"""
How replicas are spread when a deployment is scaled in the middle of a rollout: each replica set gets its share.

See "Proportional scaling" of the Kubernetes documentation on deployments. These are plain numbers, with no objects.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Share(NamedTuple):
    """A replica set that has replicas."""

    replicas: int
    limit: int
    """How many replicas all sets might have in total when it was scaled last."""
    age: tuple[str, int]
    """What the sets are ordered by from the oldest to the newest."""


def spread(shares: Sequence[Share], wanted: int, surge: int) -> list[int]:
    """Give the new numbers of replicas of all sets, in their order.

    Args:
        shares: The sets that have replicas, at least one.
        wanted: How many replicas the deployment is to have.
        surge: How many more there may be of all sets in the meantime.
    """
    limit = wanted + surge if wanted > 0 else 0
    adding = limit - sum(share.replicas for share in shares)
    # The largest go first; of the same size, the newest are the first to grow, and the oldest are the first to shrink.
    order = sorted(range(len(shares)), key=lambda index: shares[index].age, reverse=adding > 0)
    order.sort(key=lambda index: -shares[index].replicas)
    sizes, left = [share.replicas for share in shares], adding
    for index in order:
        share = shares[index]
        fair = _round(share.replicas * (wanted + surge), share.limit) - share.replicas if wanted else -share.replicas
        step = min(fair, left) if adding > 0 else max(fair, left)
        sizes[index] += step
        left -= step
    sizes[order[0]] = max(sizes[order[0]] + left, 0)  # what is left by the rounding
    return sizes


def _round(dividend: int, divisor: int) -> int:
    """Divide, to the nearest integer; the halves go up."""
    return (2 * dividend + divisor) // (2 * divisor)
