"""
Diffs: what exactly has changed between two states of an object.

``None`` means absence, as in Kubernetes. Dicts are compared key by key, everything else (lists too) as a whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kopf._values.fields import FieldPath


class DiffOperation(enum.StrEnum):
    """What happened to a field."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"

    def __repr__(self) -> str:
        return repr(self.value)


class DiffItem(NamedTuple):
    """One changed field: ``(operation, field, old, new)``."""

    operation: DiffOperation
    field: FieldPath
    old: Any
    new: Any

    @property
    def op(self) -> DiffOperation:
        """The same as :attr:`operation`."""
        return self.operation

    def __repr__(self) -> str:
        return repr(tuple(self))


class Diff(tuple[DiffItem, ...]):
    """An immutable sequence of changed fields; empty (false) when nothing has changed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return tuple.__repr__(self)


EMPTY = Diff()


def diff(old: Any, new: Any) -> Diff:
    """Compare two values; the fields of the diff are relative to them."""
    return Diff(_iterate(old, new, ())) if old is not new else EMPTY


def _iterate(old: Any, new: Any, path: FieldPath) -> Iterator[DiffItem]:
    if old is None and new is None:
        return
    if old is None:
        yield DiffItem(DiffOperation.ADD, path, old, new)
    elif new is None:
        yield DiffItem(DiffOperation.REMOVE, path, old, new)
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key, value in old.items():
            yield from _iterate(value, new.get(key), (*path, key))
        for key, value in new.items():
            if key not in old:
                yield from _iterate(None, value, (*path, key))
    elif not _is_same(old, new):
        yield DiffItem(DiffOperation.CHANGE, path, old, new)


def _is_same(old: Any, new: Any) -> bool:
    """Compare as JSON does, on all levels of lists and of dicts in them: in Python, ``1 == True``."""
    if old != new or isinstance(old, bool) != isinstance(new, bool):
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(_is_same(value, new[key]) for key, value in old.items())
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return all(map(_is_same, old, new))
    return True
