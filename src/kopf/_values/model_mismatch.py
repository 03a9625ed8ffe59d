"""The error of the objects that are not as their models say."""

from __future__ import annotations


class ModelMismatchError(ValueError):
    """An object does not fit its model; the message says which field, and why."""
