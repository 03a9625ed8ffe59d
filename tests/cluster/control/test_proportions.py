from __future__ import annotations

import pytest

from kopf_cluster.control.deployments import Share, spread


@pytest.mark.parametrize(
    ("sizes", "limit", "wanted", "surge", "expected"),
    [
        ((8, 5), 13, 15, 3, [11, 7]),  # the example of the documentation
        ((8, 5), 13, 5, 3, [5, 3]),
        ((8, 5), 13, 0, 3, [0, 0]),
        ((1, 1), 2, 3, 0, [1, 2]),  # of the same size, the newest grows first
        ((2, 2), 4, 3, 0, [1, 2]),  # and the oldest shrinks first
        ((10, 0), 10, 20, 0, [20, 0]),
        ((3, 3, 3), 9, 10, 0, [3, 3, 4]),
        ((5, 3, 1), 9, 9, 3, [7, 4, 1]),
    ],
)
def test_everybody_gets_a_share(
    sizes: tuple[int, ...], limit: int, wanted: int, surge: int, expected: list[int]
) -> None:
    shares = [Share(size, limit, ("2026-01-01T00:00:00Z", number)) for number, size in enumerate(sizes)]
    assert spread(shares, wanted, surge) == expected
    assert sum(expected) == (wanted + surge if wanted else 0)
