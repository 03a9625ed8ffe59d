"""
The guard of imports: the folders of users' files are the first in ``sys.path``, but only for the users' files.

Those folders can have files with the names of modules of Python or libraries (``argparse.py``), by accident or malice.
Imports of the framework and of libraries, also in a running operator, find the installed modules first; and only those
if the code itself names the module: many libraries try to import others that are not installed.
"""

from __future__ import annotations

import importlib.machinery
import opcode
import os
import sys
import traceback
from collections.abc import Sequence
from types import FrameType, ModuleType

from kopf._logging.tracebacks import is_library

_IMPORTLIB = os.path.dirname(os.path.abspath(importlib.__file__)) + os.sep
_FRAMEWORK = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_IMPORT_STATEMENT = opcode.opmap["IMPORT_NAME"]


class ImportGuard:
    """A finder of modules (see ``sys.meta_path``); it leaves the imports of users to the usual finders."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        """The folders of the users' files."""
        self.requested: set[str] = set()
        """The modules that the command line names: the framework imports them for the users."""

    def install(self) -> None:
        """Take effect, if not yet, for the whole process, as ``sys.path``."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the installed module for a library; return ``None`` for the usual search."""
        if path is not None or fullname in self.requested or not self.folders.intersection(sys.path):
            return None
        if fullname in sys.builtin_module_names:
            return None
        importer = _find_importer(sys._getframe(1))
        if importer is None or not is_library(importer.f_code.co_filename):
            return None
        installed = [folder for folder in sys.path if folder not in self.folders]
        spec = importlib.machinery.PathFinder.find_spec(fullname, installed, target)
        # Modules of the standard library can be for other systems.
        if spec is None and (fullname in sys.stdlib_module_names or _is_named_by(importer)):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return spec


def _find_importer(frame: FrameType) -> FrameType | None:
    """Find the frame of the code with the import."""
    machinery = ("<frozen importlib", _IMPORTLIB)
    frames = (item for item, _ in traceback.walk_stack(frame))
    return next((item for item in frames if not item.f_code.co_filename.startswith(machinery)), None)


def _is_named_by(importer: FrameType) -> bool:
    """
    Tell if the code itself names the module, so that it cannot mean a file of users.

    Libraries can get other names from elsewhere, e.g. from settings: these can mean users' files. The framework does
    not.
    """
    code = importer.f_code
    return code.co_filename.startswith(_FRAMEWORK) or code.co_code[importer.f_lasti] == _IMPORT_STATEMENT


guard = ImportGuard()
"""The guard of this process."""
