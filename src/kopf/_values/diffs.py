"""
Diffs: the changes between two states of an object.

``None`` means absence, as in Kubernetes. Dicts are compared key by key; everything else, lists included, as a whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kopf._values import codec
from kopf._values.fields import FieldPath


class DiffOperation(enum.StrEnum):
    """The operation on a field: it was added, changed, or removed."""

    ADD = "add"
    """The field had no value before: ``old`` is ``None``."""
    CHANGE = "change"
    """The field had another value before."""
    REMOVE = "remove"
    """The field has no value now: ``new`` is ``None``."""

    def __repr__(self) -> str:
        return repr(self.value)


class DiffItem(NamedTuple):
    """One changed field: ``(operation, field, old, new)``. The absent value of the two is ``None``."""

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
    """An immutable sequence of changed fields (:class:`DiffItem`); empty (false) if nothing has changed."""

    __slots__ = ()

    def __repr__(self) -> str:
        try:
            return tuple.__repr__(self)
        except RecursionError:  # logging for debugging must break nothing
            return "<Diff, nested too deeply to be shown>"


EMPTY = Diff()
_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_MAPPINGS = _SCALARS | {list, tuple}
_PLAIN = frozenset({dict, list})
_DEEP = 32
"""Below this level, only single values are compared: otherwise, each level would cost as much as all levels below."""


def diff(old: Any, new: Any) -> Diff:
    """Compare two values. The fields of the diff are relative to them."""
    return Diff(_iterate(old, new, ())) if old is not new else EMPTY


def _iterate(old: Any, new: Any, path: FieldPath) -> Iterator[DiffItem]:
    """Compare the fields in their order, without recursion: objects can be deeper than the call stack of Python."""
    pending = [(old, new, path)]
    while pending:
        old, new, path = pending.pop()
        if old is None and new is None:
            continue
        if old is None:
            yield DiffItem(DiffOperation.ADD, path, old, new)
        elif new is None:
            yield DiffItem(DiffOperation.REMOVE, path, old, new)
        elif _are_mappings(old, new):
            fields = []
            deep = len(path) > _DEEP
            for key, value in old.items():
                other = new.get(key)
                kind = type(value)
                if kind is not type(other) or (
                    value != other if kind in _SCALARS else deep or not _is_surely_same(value, other)
                ):
                    fields.append((value, other, (*path, key)))
            if not new.keys() <= old.keys():
                fields += [(None, value, (*path, key)) for key, value in new.items() if key not in old]
            fields.reverse()
            pending += fields
        elif not _is_same(old, new):
            yield DiffItem(DiffOperation.CHANGE, path, old, new)


def _are_mappings(old: Any, new: Any) -> bool:
    if type(old) in _NO_MAPPINGS:  # these checks are much faster, and cover most of the values
        return False
    return type(old) is type(new) is dict or (isinstance(old, Mapping) and isinstance(new, Mapping))


def _is_same(old: Any, new: Any) -> bool:
    """Compare as JSON does, on all levels of lists and of dicts in them: in Python, ``1 == True``."""
    if type(old) is type(new) and type(old) in _SCALARS:
        return bool(old == new)
    pending = [(old, new)]
    while pending:
        old, new = pending.pop()
        if _are_mappings(old, new):
            if old.keys() != new.keys():
                return False
            pending += [(value, new[key]) for key, value in old.items()]
        elif isinstance(old, list | tuple) and type(old) is type(new):
            if len(old) != len(new):
                return False
            pending += zip(old, new, strict=True)
        elif old != new or isinstance(old, bool) != isinstance(new, bool):
            return False
    return True


def _is_surely_same(old: Any, new: Any) -> bool:
    """
    Tell if containers of the same type are surely the same, as fast as possible. In doubt, returns false.

    If they are equal in Python, compare their JSON. It is much faster than a comparison value by value.
    """
    try:
        return type(old) in _PLAIN and old == new and codec.encode(old) == codec.encode(new)
    except (TypeError, ValueError, RecursionError):  # not JSON, or too deep
        return False
