"""The error of the objects that are not as their models say."""

from __future__ import annotations


class ModelMismatchError(ValueError):
    """An object does not fit its model; the message says which field, and why."""

    def __init__(self, kind: str, field: str, problem: str) -> None:
        super().__init__(kind, field, problem)
        self.field = field
        """E.g. ``spec.replicas``."""

    def __str__(self) -> str:
        return "The object does not fit {}: {}: {}".format(*self.args)
