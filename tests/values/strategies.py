"""Random JSON-like values for the tests that state a rule for all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# A few keys only, so that they often coincide; with all that is special in JSON pointers & annotations.
keys: st.SearchStrategy[str] = st.sampled_from(["a", "b", "0", "a/b", "a~b", "~1", ""])
# No numbers that Python considers to be equal to booleans or to each other: a schema fixes the types of the fields.
scalars: st.SearchStrategy[Any] = st.booleans() | st.sampled_from([2, 3, 0.5, "", "x", "ё", "2"])


def _extend(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3) | st.dictionaries(keys, values, max_size=3)


values: st.SearchStrategy[Any] = st.recursive(scalars, _extend, max_leaves=6)
"""Any JSON values except for nulls: in Kubernetes, they mean absence."""

nullables: st.SearchStrategy[Any] = st.recursive(scalars | st.none(), _extend, max_leaves=6)
"""Any JSON values with nulls."""

objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(keys, values, max_size=3)
patches: st.SearchStrategy[dict[str, Any]] = st.dictionaries(keys, nullables, max_size=3)
