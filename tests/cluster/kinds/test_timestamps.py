from __future__ import annotations

import pytest

from kopf_cluster.kinds.builtin_pruning import canonical


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T10:20:30Z", "2024-02-29T10:20:30Z"),
        ("2024-02-29T10:20:30.999Z", "2024-02-29T10:20:30Z"),
        ("2024-02-29T10:20:30+02:00", "2024-02-29T08:20:30Z"),
    ],
)
def test_seconds(text: str, expected: str) -> None:
    assert canonical(text, micro=False) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T10:20:30.123456Z", "2024-02-29T10:20:30.123456Z"),
        ("2024-02-29T10:20:30.000000+02:00", "2024-02-29T08:20:30.000000Z"),
    ],
)
def test_microseconds(text: str, expected: str) -> None:
    assert canonical(text, micro=True) == expected


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("", False),
        ("2024-02-29", False),
        ("2024-02-29 10:20:30Z", False),
        ("2024-02-29T10:20:30", False),
        ("2024-02-29T10:20:30Zoo", False),
        ("2024-02-29T10:20:30Z", True),
        ("2024-02-30T10:20:30Z", False),
    ],
)
def test_nonsense(text: str, micro: bool) -> None:
    with pytest.raises(ValueError, match=f'^parsing time "{text}"'):
        canonical(text, micro=micro)
