"""
Libraries of other clients: optional, large, of any version, and not always in order.

What they lack or do otherwise in some versions is found out by what they have, never by their versions. If they fail
nevertheless, the users should learn which library it was, and what they can do about it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from kopf._client.auth.credentials import LoginError

_DISTRIBUTIONS = {"pykube": "pykube-ng"}

_FAULTS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
"""What an outdated or a half-installed library raises, rather than a wrong configuration."""


class LibraryError(LoginError):
    """The library itself is broken or too different; the message names it, and says what can be done."""


def import_library(name: str, *modules: str) -> Any:
    """
    Import a library with its modules and get it; ``None`` if it is not installed.

    It takes a second or more, and a multiple of it on a busy machine: call it in a thread if you can. Raises
    :class:`LibraryError` if the library is there, but is broken.
    """
    paths = [name, *(f"{name}.{module}" for module in modules)]
    try:
        for path in paths:
            importlib.import_module(path)
    except ModuleNotFoundError as exc:
        # Without its modules, it is something else with the same name: e.g. a folder with manifests.
        if exc.name in paths:
            return None
        raise _blame(name, exc) from exc
    except Exception as exc:  # anything can happen in somebody's modules
        raise _blame(name, exc) from exc
    return importlib.import_module(name)


def is_importing(frame: FrameType | None) -> bool:
    """Tell if the stack is inside of :func:`import_library`: it is slow, but nobody's fault."""
    while frame is not None:
        if frame.f_code is import_library.__code__:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Turn the faults of the library into :class:`LibraryError`, with its version and with what can be done."""
    try:
        yield
    except _FAULTS as exc:
        raise _blame(name, exc) from exc


def name_library(name: str) -> str:
    """Name the library as it is installed, with its version if that is known."""
    import importlib.metadata  # it is a lot, for nothing but failures

    distribution = _DISTRIBUTIONS.get(name, name)
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} of an unknown version"


def _blame(name: str, exc: Exception) -> LibraryError:
    distribution = _DISTRIBUTIONS.get(name, name)
    return LibraryError(
        f"The library {name_library(name)} has failed on Python {sys.version.split()[0]}: {exc!r}. "
        f"Most probably, it does not fit to this Python or to the other packages. Install another version of it "
        f"(e.g. `pip install --upgrade {distribution}`), or log in without it: by kopf.login_with_kubeconfig() or "
        "kopf.login_with_service_account() in a handler for @kopf.on.login()."
    )
