"""
Names of items in lists: each is a label of DNS, and nobody else's in the list.
"""
from __future__ import annotations

from collections.abc import Iterator

from kopf_cluster.statuses import FieldError, duplicate_value, invalid_value, required
from kopf_cluster.validation import object_names


def validate_item_name(name: str, path: str, taken: set[str], *, needed: bool = True) -> Iterator[FieldError]:
    """Give what is wrong with the name of the next item, and take the name."""
    if not name:
        if needed:
            yield required(path)
        return
    for why in object_names.label(name):
        yield invalid_value(path, name, why)
    if name in taken:
        yield duplicate_value(path, name)
    taken.add(name)
