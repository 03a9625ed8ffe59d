"""
The version of the framework: the only place where it is, the distribution takes it from here.

It is not asked from the metadata of the installed distribution, as that takes longer than to start the command line.
"""

from __future__ import annotations

__version__ = "2.0.0.dev0"

_parts = __version__.split(".")
__version_tuple__: tuple[int | str, ...] = tuple(int(part) if part.isdigit() else part for part in _parts)
