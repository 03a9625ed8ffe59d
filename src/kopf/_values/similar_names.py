"""Similar names: what could have been meant by a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def find_similar_names(name: str, known: Iterable[str], *, limit: int = 3, likeness: float = 0.6) -> Sequence[str]:
    """
    Find the names that are similar to this one, the most similar first; none is the most usual outcome.

    ``likeness`` is how similar they must be, where 1 is for equal ones.
    """
    import difflib  # only mistakes need it, and an operator in production has none

    return difflib.get_close_matches(name, list(known), n=limit, cutoff=likeness)
