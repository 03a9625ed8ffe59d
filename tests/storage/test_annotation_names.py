from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kopf
from kopf._storage.annotation_names import AnnotationNaming, list_managed_prefixes, mark_prefix
from kopf._values.bodies import Body
from kopf._values.patches import Patch

DEFAULT = "kopf.zalando.org"
CUSTOM = "my-op.example.com"
LONG = "a-very-long-handler-id-that-goes-beyond-the-limit-of-sixty-three-characters/with-slash"


@pytest.mark.parametrize("prefix", [DEFAULT, CUSTOM])
@pytest.mark.parametrize(
    ("id", "key"),
    [
        ("create_fn", "create_fn"),
        ("fn/a/b", "fn.a.b"),
        ("fn/spec.field", "fn.spec.field"),
        ("UPPER-lower_123.x", "UPPER-lower_123.x"),
        ("last-handled-configuration", "last-handled-configuration"),
        ("touch-dummy", "touch-dummy"),
        ("x" * 45, "x" * 45),
    ],
)
def test_short_ids_are_used_as_they_are(prefix: str, id: str, key: str) -> None:
    assert AnnotationNaming(prefix=prefix).make_keys(id) == (f"{prefix}/{key}",)


@pytest.mark.parametrize(
    ("prefix", "id", "v2", "v1"),
    [
        (
            CUSTOM,
            LONG,
            "a-very-long-handler-id-that-goes-beyond-the-limit-of-six-btfSKw",
            "a-very-long-handler-id-that-goes-beyon-ZYS11w",
        ),
        (CUSTOM, "x" * 63, "x" * 63, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-GINbRg"),
        (CUSTOM, "x" * 64, "x" * 56 + "-SItAqA", "x" * 38 + "-SItAqA"),
        (DEFAULT, "x" * 46, "x" * 46, None),
        (DEFAULT, "x" * 63, "x" * 63, "x" * 39 + "-GINbRg"),
    ],
)
def test_long_ids_are_cut_and_hashed_as_they_always_were(prefix: str, id: str, v2: str, v1: str | None) -> None:
    keys = tuple(f"{prefix}/{key}" for key in (v2, v1) if key is not None)
    assert AnnotationNaming(prefix=prefix).make_keys(id) == keys
    assert AnnotationNaming(prefix=prefix, v1=False).make_keys(id) == keys[:1]


def test_the_limits_are_used_in_full() -> None:
    (v2, v1) = AnnotationNaming(prefix=CUSTOM).make_keys("x" * 100)
    assert len(v2) == len(CUSTOM) + 1 + 63
    assert len(v1) == 63


@pytest.mark.parametrize(
    "cls", [kopf.AnnotationsProgressStorage, kopf.SmartProgressStorage, kopf.AnnotationsDiffBaseStorage]
)
@pytest.mark.parametrize("prefix", ["", None])
def test_there_must_be_a_prefix(cls: Callable[..., object], prefix: str | None) -> None:
    with pytest.raises(ValueError, match="need a prefix"):
        cls(prefix=prefix)


# https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/#syntax-and-character-set
QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

prefixes = st.integers(1, 63).flatmap(lambda size: st.lists(st.just("x" * size), min_size=1, max_size=3)).map(".".join)


@given(id=st.text(), prefix=prefixes)
@example(id="has spaces", prefix=DEFAULT)
@example(id="приве́т", prefix=DEFAULT)
@example(id="a:b", prefix=DEFAULT)
@example(id="-fn-", prefix=DEFAULT)
@example(id="_private", prefix=DEFAULT)
@example(id="<lambda>", prefix=DEFAULT)
@example(id="/", prefix=DEFAULT)
@example(id="", prefix=DEFAULT)
@example(id="fn\n", prefix=DEFAULT)
@example(id="fn" * 100, prefix="x" * 55)
@example(id="fn" * 100, prefix="x" * 63 + ".x")
def test_any_ids_make_names_that_are_valid_for_kubernetes(id: str, prefix: str) -> None:
    for name in AnnotationNaming(prefix=prefix).make_keys(id):
        assert name.startswith(f"{prefix}/")
        assert QUALIFIED_NAME.fullmatch(name[len(prefix) + 1 :])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("fn a", "fn b"),
        ("fn a", "fn-a"),
        ("fn a", "fn:a"),
        ("é", "è"),
        ("-fn", "fn"),
        ("x" * 70 + "a", "x" * 70 + "b"),
    ],
)
def test_different_ids_have_different_names(one: str, two: str) -> None:
    naming = AnnotationNaming(prefix=DEFAULT)
    assert not set(naming.make_keys(one)) & set(naming.make_keys(two))


# --- the marks of the prefixes ---


@pytest.mark.parametrize(
    ("prefix", "annotations", "expected"),
    [
        (DEFAULT, {}, {}),
        (CUSTOM, {}, {"my-op.example.com/kopf-managed": "yes"}),
        (CUSTOM, {"other.com/kopf-managed": "yes"}, {"my-op.example.com/kopf-managed": "yes"}),
        (CUSTOM, {"my-op.example.com/kopf-managed": "yes"}, {}),
    ],
)
def test_custom_prefixes_are_marked_once(prefix: str, annotations: dict[str, str], expected: dict[str, str]) -> None:
    patch = Patch()
    mark_prefix(prefix, body=Body({"metadata": {"annotations": annotations}}), patch=patch)
    mark_prefix(prefix, body=Body({"metadata": {"annotations": annotations}}), patch=patch)
    assert patch.metadata.annotations == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {DEFAULT}),
        ({"some": "x", "other.com/x": "y"}, {DEFAULT}),
        ({"other.com/kopf-managed": "yes", "more.com/kopf-managed": "yes"}, {DEFAULT, "other.com", "more.com"}),
        ({"kopf-managed": "yes"}, {DEFAULT}),
    ],
)
def test_managed_prefixes(annotations: dict[str, str], expected: set[str]) -> None:
    assert set(list_managed_prefixes(annotations)) == expected
