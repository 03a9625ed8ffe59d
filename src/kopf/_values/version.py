"""
The version of the framework. The distribution takes it from here.

It does not come from the metadata of the installed distribution, as this would take longer than the start of the
command line.
"""

from __future__ import annotations

__version__ = "2.0.0.dev0"

_parts = __version__.split(".")
__version_tuple__: tuple[int | str, ...] = tuple(int(part) if part.isdigit() else part for part in _parts)
