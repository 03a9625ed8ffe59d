from __future__ import annotations

import re

import pytest

from kopf_cluster.kinds.pruning import canonical


@pytest.mark.parametrize(("text", "expected"), [
    ("2024-02-29T10:20:30Z", "2024-02-29T10:20:30Z"),
    ("2024-02-29T10:20:30.999Z", "2024-02-29T10:20:30Z"),
    ("2024-02-29T10:20:30+02:00", "2024-02-29T08:20:30Z"),
])
def test_seconds(text: str, expected: str) -> None:
    assert canonical(text, micro=False) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("2024-02-29T10:20:30.123456Z", "2024-02-29T10:20:30.123456Z"),
    ("2024-02-29T10:20:30.000000+02:00", "2024-02-29T08:20:30.000000Z"),
])
def test_microseconds(text: str, expected: str) -> None:
    assert canonical(text, micro=True) == expected


@pytest.mark.parametrize(("text", "micro", "tail"), [
    ("", False, 'cannot parse "" as "2006"'),
    ("2024-02-29", False, 'cannot parse "" as "T"'),
    ("2024-02-29 10:20:30Z", False, 'cannot parse " 10:20:30Z" as "T"'),
    ("2024-02-29T10:20:30", False, 'cannot parse "" as "Z07:00"'),
    ("2024-02-29T10:20:30Zoo", False, 'extra text: "oo"'),
    ("2024-02-29T10:20:30Z", True, 'cannot parse "Z" as ".000000"'),
    ("2024-02-30T10:20:30Z", False, "day out of range"),
])
def test_nonsense(text: str, micro: bool, tail: str) -> None:
    with pytest.raises(ValueError, match=f"^parsing time \"{text}\".*{re.escape(tail)}$"):
        canonical(text, micro=micro)
