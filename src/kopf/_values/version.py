"""The version of the framework, as it was installed."""

from __future__ import annotations

import importlib.metadata

try:
    __version__ = importlib.metadata.version("kopf")
except importlib.metadata.PackageNotFoundError:  # it runs from the sources, with nothing installed
    __version__ = "0.0.0"

_parts = __version__.split(".")
__version_tuple__: tuple[int | str, ...] = tuple(int(part) if part.isdigit() else part for part in _parts)
