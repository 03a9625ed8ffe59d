"""
Whose modules are imported: the folders of users' files are the first in ``sys.path``, but for the users' files only.

Those folders can have files named as modules of Python or of libraries (``argparse.py``), by accident or by malice.
What the framework and libraries import, also in a running operator, is looked for among the installed modules first;
and only there if they name it themselves: many libraries try to import others, which are not there.
"""

from __future__ import annotations

import importlib.machinery
import opcode
import os
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, ModuleType

from kopf._logging.tracebacks import is_library

_IMPORTLIB = os.path.dirname(os.path.abspath(importlib.__file__)) + os.sep
_FRAMEWORK = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_IMPORT_STATEMENT = opcode.opmap["IMPORT_NAME"]


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
        if fullname in sys.builtin_module_names:
            return None
        importer = _find_importer(sys._getframe(1))
        if importer is None or not is_library(importer.f_code.co_filename):
            return None
        installed = [folder for folder in sys.path if folder not in self.folders]
        spec = importlib.machinery.PathFinder.find_spec(fullname, installed, target)
        # Those of the standard library can be of other systems.
        if spec is None and (fullname in sys.stdlib_module_names or _is_named_by(importer)):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return spec


def _find_importer(frame: FrameType) -> FrameType | None:
    """Find the code that has the import."""
    machinery = ("<frozen importlib", _IMPORTLIB)
    return next((item for item in _walk(frame) if not item.f_code.co_filename.startswith(machinery)), None)


def _is_named_by(importer: FrameType) -> bool:
    """
    Tell if the code has the name of the module in itself, so that no file of users can be meant.

    Libraries get other names from elsewhere, e.g. from settings: those can be of the users' files. The framework
    does not.
    """
    code = importer.f_code
    return code.co_filename.startswith(_FRAMEWORK) or code.co_code[importer.f_lasti] == _IMPORT_STATEMENT


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


guard = ImportGuard()
"""The guard of this process."""
