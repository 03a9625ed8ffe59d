"""Broken, slow, and absent libraries of other clients instead of the real ones."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator

NAMES = ("kubernetes", "kubernetes_asyncio", "pykube")


@contextlib.contextmanager
def replace_libraries(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Look for the libraries in the folder first; none of them is imported yet. The real ones are back in the end."""
    real = {name: sys.modules.pop(name) for name in _list_imported()}
    folder.mkdir()
    sys.path.insert(0, str(folder))
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        for name in _list_imported():
            del sys.modules[name]
        sys.modules.update(real)


def write_library(folder: pathlib.Path, name: str, **modules: str) -> None:
    """Write a library with the modules that are always imported, and with these sources in some of them."""
    (folder / name).mkdir()
    for module, source in {"__init__": "", "client": "", "config": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(source)


def _list_imported() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in NAMES]
