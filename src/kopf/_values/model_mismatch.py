"""The error for objects that do not fit their models."""

from __future__ import annotations


class ModelMismatchError(ValueError):
    """An object does not fit its model. The message names the field and the problem."""

    def __init__(self, kind: str, field: str, problem: str) -> None:
        super().__init__(kind, field, problem)
        self.field = field
        """The field, e.g. ``spec.replicas``."""

    def __str__(self) -> str:
        return "The object does not fit {}: {}: {}".format(*self.args)
