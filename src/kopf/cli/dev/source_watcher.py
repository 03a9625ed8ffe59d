"""
The watcher of source files: it regularly compares their sizes and modification times.

This is cheap for the files of an operator, and works on all systems and on network & container volumes, where
notifications of file systems often do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

Stamp = tuple[int, int] | None


class SourceWatcher:
    """
    Watches the specified files, and all source files next to them.

    The neighbours are watched even if they are not imported yet, as a missing one can fail the import.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._files = {os.path.realpath(path) for path in files}
        self._folders = {os.path.dirname(path) for path in self._files}
        self._stamps = self._look()

    def add(self, files: Iterable[str]) -> None:
        """Watch more files, as they are now; or as they were, if they are watched already as neighbours."""
        for path in files:
            if path not in self._files:
                self._files.add(path)
                if path not in self._stamps:
                    self._stamps[path] = _get_stamp(path)

    def poll(self) -> set[str]:
        """Return the files that were changed, added, or removed since the last call."""
        stamps = self._look()
        paths = stamps.keys() | self._stamps.keys()
        changed = {path for path in paths if stamps.get(path) != self._stamps.get(path)}
        self._stamps = stamps
        return changed

    def _look(self) -> dict[str, Stamp]:
        neighbours = {path for folder in self._folders for path in _list_sources(folder)}
        return {path: _get_stamp(path) for path in self._files | neighbours}


def _list_sources(folder: str) -> list[str]:
    try:
        return [
            os.path.join(folder, name)
            for name in os.listdir(folder)
            if name.endswith(".py") and not name.startswith(".")
        ]
    except OSError:
        return []


def _get_stamp(path: str) -> Stamp:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size
