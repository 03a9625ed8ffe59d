"""What is not installed, and what to do about it."""

from __future__ import annotations


class MissingDependencyError(Exception):
    """A library is needed that is not a dependency of the framework itself; the text tells how to get it."""
