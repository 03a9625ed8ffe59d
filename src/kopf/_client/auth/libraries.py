"""
Libraries of other clients: optional, large, of any version, and sometimes broken.

Differences between their versions are detected by their attributes, never by version numbers. If a library fails
nevertheless, the error names the library and tells the user what to do.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from kopf._client.auth.credentials import LoginError

_DISTRIBUTIONS = {"pykube": "pykube-ng", "kubernetes.aio": "kubernetes"}

_FAULTS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
"""Errors that outdated or half-installed libraries raise, unlike wrong configurations."""


class LibraryError(LoginError):
    """The library is broken or too different. The message names it, and says what to do."""


def import_library(name: str, *modules: str) -> Any:
    """
    Import a library with its modules and return it; ``None`` if it is not installed.

    The import takes a second or more, and much longer on a busy machine, so do it in a thread if possible. Raises
    :class:`LibraryError` if the library is broken.
    """
    paths = [name, *(f"{name}.{module}" for module in modules)]
    try:
        for path in paths:
            importlib.import_module(path)
    except ModuleNotFoundError as exc:
        # Without its modules, it is something else of the same name, e.g. a folder with manifests.
        if exc.name in paths:
            return None
        raise _blame(name, exc) from exc
    except Exception as exc:  # foreign modules can raise anything
        raise _blame(name, exc) from exc
    return importlib.import_module(name)


def is_importing(frame: FrameType | None) -> bool:
    """Tell if the stack is inside of :func:`import_library`, which is slow, but nobody's fault."""
    while frame is not None:
        if frame.f_code is import_library.__code__:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Turn faults of the library into :class:`LibraryError`, with its version and advice."""
    try:
        yield
    except _FAULTS as exc:
        raise _blame(name, exc) from exc


def name_library(name: str) -> str:
    """Get the name of the distribution with its version, if known."""
    import importlib.metadata  # it is large, and only failures need it

    distribution = _DISTRIBUTIONS.get(name, name)
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} of an unknown version"


def _blame(name: str, exc: Exception) -> LibraryError:
    distribution = _DISTRIBUTIONS.get(name, name)
    return LibraryError(
        f"The library {name_library(name)} has failed on Python {sys.version.split()[0]}: {exc!r}. "
        f"Most probably, it is incompatible with this Python or with other packages. Install another version of it "
        f"(e.g. `pip install --upgrade {distribution}`), or log in without it: by kopf.login_with_kubeconfig() or "
        "kopf.login_with_service_account() in a handler for @kopf.on.login()."
    )
