from __future__ import annotations

import pytest

from kopf_cluster.ages import age, human_duration


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_are_as_in_kubectl(seconds: int, expected: str) -> None:
    assert human_duration(seconds) == expected


@pytest.mark.parametrize("timestamp", [None, 5, "yesterday", ""])
def test_ages_of_what_is_not_a_timestamp(timestamp: object) -> None:
    assert age(timestamp) == "<unknown>"
