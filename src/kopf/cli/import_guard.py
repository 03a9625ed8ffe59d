"""
Whose modules are imported: the folders of users' files are the first in ``sys.path``, but for the users' files only.

Those folders can have files named as modules of Python or of libraries (``argparse.py``), by accident or by malice.
What the framework and libraries import, also in a running operator, is looked for among the installed modules first.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, ModuleType

from kopf._logging.tracebacks import is_library

_IMPORTLIB = os.path.dirname(os.path.abspath(importlib.__file__)) + os.sep


class ImportGuard:
    """A finder of modules (see ``sys.meta_path``), which leaves to the usual ones whatever users import."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        """The folders of the users' files."""
        self.requested: set[str] = set()
        """The modules that are named in the command line: the framework imports them for the users."""

    def install(self) -> None:
        """Take effect, if not yet. It is for the whole process, as ``sys.path`` is."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the installed module for a library; ``None`` if it is to be looked for as usual."""
        if path is not None or fullname in self.requested or not self.folders.intersection(sys.path):
            return None
        if fullname in sys.builtin_module_names or not is_library(_get_importer(sys._getframe(1))):
            return None
        installed = [folder for folder in sys.path if folder not in self.folders]
        return importlib.machinery.PathFinder.find_spec(fullname, installed, target)


def _get_importer(frame: FrameType) -> str:
    """Get the file whose code has the import."""
    names = (frame.f_code.co_filename for frame in _walk(frame))
    return next((name for name in names if not name.startswith(("<frozen importlib", _IMPORTLIB))), "")


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


guard = ImportGuard()
"""The guard of this process."""
