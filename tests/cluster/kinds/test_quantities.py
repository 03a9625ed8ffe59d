from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils import quantity as reference

from kopf_cluster.quantities import canonical


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1"),
        ("1000", "1k"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("0.0000000001", "1n"),
        ("1.5Ki", "1536"),
        ("128974848", "128974848"),
        ("-5m", "-5m"),
        ("+5", "5"),
        (".5", "500m"),
        ("5.", "5"),
        ("0Gi", "0"),
    ],
)
def test_canonical_forms(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize("text", ["", "much", "1x", "1 Gi", "--1", "1e", ".", "1Mii"])
def test_nonsense(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        canonical(text)


_parse: Callable[[str], Decimal] = reference.parse_quantity
_SUFFIXES = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]
_QUANTITIES = st.builds(
    lambda number, suffix: f"{number}{suffix}", st.integers(-(10**6), 10**9), st.sampled_from(_SUFFIXES)
)


@given(_QUANTITIES)
def test_canonical_forms_are_stable_and_equal_to_the_originals(text: str) -> None:
    made = canonical(text)
    assert canonical(made) == made
    assert Fraction(_parse(made)) == Fraction(_parse(text))
