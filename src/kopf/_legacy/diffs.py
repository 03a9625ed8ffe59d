"""Diffs of single fields, out of the diffs of whole objects."""

from __future__ import annotations

from kopf._values.diffs import Diff, DiffItem, diff
from kopf._values.fields import FieldPath, FieldSpec, parse_field, resolve


def reduce(d: Diff, path: FieldSpec) -> Diff:
    """Get what has changed in the field, with the paths relative to it."""
    field = parse_field(path)
    return Diff(item for whole in d for item in _narrow(whole, field))


def _narrow(item: DiffItem, field: FieldPath) -> Diff:
    size = len(item.field)
    if item.field[: len(field)] == field:
        return Diff([item._replace(field=item.field[len(field) :])])
    if item.field != field[:size]:
        return Diff()
    return diff(resolve(item.old, field[size:]), resolve(item.new, field[size:]))
