"""
Options by keywords: those that do not exist are refused, as Python does it for usual arguments.
"""

from __future__ import annotations

from collections.abc import Collection


def check_options(given: Collection[str], known: type) -> None:
    """Raise :class:`TypeError` if there is an option that is not in the `TypedDict`."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"There is no option {name!r} here; there are: {', '.join(names)}.")
