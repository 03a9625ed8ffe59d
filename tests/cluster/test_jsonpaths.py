from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import jsonpaths

DOCUMENT = {
    "spec": {"a": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}, {"v": 3}], "dotted.key": True},
    "empty": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".spec.a", [1]),
        ("spec.a", [1]),
        ("{.spec.a}", [1]),
        ("$.spec.a", [1]),
        (".spec.list[0].v", [1]),
        (".spec.list[-1].v", [3]),
        (".spec.list[7].v", []),
        (".spec.list[*].v", [1, 2, 3]),
        (".spec['dotted.key']", [True]),
        ('.spec["dotted.key"]', [True]),
        (".spec.dotted\\.key", [True]),
        ('.spec.list[?(@.n=="y")].v', [2]),
        (".spec.list[?(@.n=='y')].v", [2]),
        ('.spec.list[?(@.n!="y")].v', [1]),
        (".spec.list[?(@.n)].v", [1, 2]),
        ("..n", ["x", "y"]),
        (".spec..v", [1, 2, 3]),
        (".spec..[1].n", ["y"]),
        ("..list[0].n", ["x"]),
        ("..a.deeper", []),
        (".missing.deeper", []),
        (".spec.a.deeper", []),
        (".empty", [None]),
    ],
)
def test_paths_find_values(text: str, expected: list[Any]) -> None:
    assert jsonpaths.parse(text).find(DOCUMENT) == expected


@pytest.mark.parametrize("text", [".a[", ".a[x]", "..", "...a", ".a..", ".a[?(1)]"])
def test_unsupported_paths_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSONPath"):
        jsonpaths.parse(text)
