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
from kopf.cli.memory import SparingFinder

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
            sys.meta_path.insert(_count_wrappers(), self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the installed module for a library; ``None`` if it is to be looked for as usual."""
        if path is not None or fullname in self.requested or not self.folders.intersection(sys.path):
            return None
        if fullname in sys.builtin_module_names or not is_library(_get_importer(sys._getframe(1))):
            return None
        installed = [folder for folder in sys.path if folder not in self.folders]
        spec = importlib.machinery.PathFinder.find_spec(fullname, installed, target)
        if spec is None and fullname in sys.stdlib_module_names:  # of other systems: libraries try them
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return spec


def _count_wrappers() -> int:
    """Those that only look at what the others find stay before them, see ``memory.py``."""
    return sum(isinstance(finder, SparingFinder) for finder in sys.meta_path[:1])


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
