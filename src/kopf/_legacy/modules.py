"""Former modules: empty ones, whose attributes are looked up among today's names when somebody asks for them."""

from __future__ import annotations

import dis
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import operator
import sys
import warnings
from types import FrameType, ModuleType
from typing import Any

from kopf._legacy.names import MODULES, Target, find_replacement, find_target

_PUBLIC_PLACES = ("kopf", "kopf.testing")


def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find a former module, when there is no real one with this name; see the hook in ``kopf/__init__.py``."""
    if name in MODULES:
        is_package = any(other.startswith(f"{name}.") for other in MODULES)
        return importlib.util.spec_from_loader(name, _Loader(), is_package=is_package)
    if name.startswith(("kopf._cogs.", "kopf._core.")):
        raise ModuleNotFoundError(_explain(f"module {name!r}", name), name=name)
    return None


class _Loader(importlib.abc.Loader):
    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = functools.partial(get_former, module.__name__)


def get_former(module: str, name: str, *, stacklevel: int = 1) -> Any:
    """
    Get what had this name in this module, with a warning for those who ask: this many frames above this one.

    Raises :class:`AttributeError` if there is nothing like that anymore; :class:`ImportError` if it is imported by
    name: otherwise, Python would not show our explanation.
    """
    if f"{module}.{name}" in MODULES:
        return importlib.import_module(f"{module}.{name}")
    target = None if name.startswith("__") else find_target(module, name)
    if target is None:
        error = ImportError if _is_import_by_name(sys._getframe(stacklevel)) else AttributeError
        raise error(_explain(f"{name!r} in {module!r}", f"{module}.{name}"))
    warnings.warn(f"{module}.{name} is private. {_advise(target)}", DeprecationWarning, stacklevel=stacklevel + 1)
    return operator.attrgetter(target.name)(importlib.import_module(target.module))


def _is_import_by_name(frame: FrameType) -> bool:
    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def _explain(what: str, name: str) -> str:
    return f"There is no {what} anymore: it was an internal part of Kopf 1. Use {find_replacement(name)}."


def _advise(target: Target) -> str:
    if target.module in _PUBLIC_PLACES or not target.module.startswith("kopf"):
        return f"Use {target.module}.{target.name} instead."
    return "It has no public counterpart, and can disappear in any version."
