"""
Loading the user's code: files and modules are imported, and their decorators fill the registry as they go.

Errors in the user's code are shown from the user's point of view: the file, the line, and the cure, without traces of
the loading.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from kopf._handlers.declarations import DeclarationError
from kopf._handlers.registry import OperatorRegistry, get_default_registry, set_default_registry
from kopf._logging.tracebacks import is_framework
from kopf._values.similar_names import find_similar_names
from kopf.cli.import_guard import guard

_MANIFESTS = (".yaml", ".yml", ".json")


class LoadingError(click.ClickException):
    """The code of the operator cannot be loaded; the message is for its developer."""


@contextlib.contextmanager
def exiting_on_refusal(exit_code: int = 1) -> Iterator[None]:
    """
    Exit with this code if the code of the operator is refused; show why.

    The cause of :class:`SystemExit` is the original error, for callers that run the commands in tests.
    """
    try:
        yield
    except LoadingError as e:
        e.show()
        raise SystemExit(exit_code) from (e.__cause__ or e)
    except DeclarationError as e:
        LoadingError(_explain_declarations(e)).show()
        raise SystemExit(exit_code) from e


def load(paths: Iterable[str], modules: Iterable[str]) -> None:
    """
    Import the files, then the modules, in the given order; repeated ones are imported once.

    As with ``python file.py`` and ``python -m module``, the files can import their neighbours, and the
    modules are also looked for in the current directory.

    Raises :class:`LoadingError` if anything cannot be imported, for any reason. The exits and interruptions
    that the code itself has requested are passed through.
    """
    seen: set[str] = set()
    for path in paths:
        if (real := os.path.realpath(path)) not in seen:
            seen.add(real)
            _load_file(path)
    for module in modules:
        _load_module(module)


def load_anew(paths: Sequence[str], modules: Sequence[str], registry: OperatorRegistry | None) -> OperatorRegistry:
    """
    Load the files and modules into this registry, or into a new one, as if for the first time: for one test.

    If there are no files and modules, return this registry or the default one.
    """
    if not paths and not modules:
        return registry if registry is not None else get_default_registry()
    registry = registry if registry is not None else OperatorRegistry()
    previous = get_default_registry()
    set_default_registry(registry)
    for name in [name for name in sys.modules if any(f"{name}.".startswith(f"{own}.") for own in modules)]:
        del sys.modules[name]  # from an earlier test: its decorators must work again
    try:
        load(paths, modules)
    finally:
        set_default_registry(previous)
    return registry


def list_sources() -> list[str]:
    """List the files of all imported modules that are neither parts of Python nor of installed packages."""
    import sysconfig  # it reads how Python was built, which only the development mode asks for

    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    prefixes = tuple(os.path.realpath(path) + os.sep for path in installed)
    found = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and not os.path.realpath(path).startswith(prefixes):
            found.add(os.path.realpath(path))
    return sorted(found)


class _FileLoader(importlib.machinery.SourceFileLoader):
    """
    Loads a file as it is now, and keeps no byte code.

    Byte code is outdated only if the second of the last change or the size differs, so a reload after two changes in
    one second could miss the second change.
    """

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        pass


def _load_file(path: str) -> None:
    if os.path.isdir(path):
        raise LoadingError(
            f"Cannot load {path!r}: it is a directory. Name the files in it, or use -m for packages."
        ) from IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.path.exists(path):
        text = f"Cannot load {path!r}: there is no such file. {suggest_files(path)}".rstrip()
        raise LoadingError(text) from FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    _forget(os.path.realpath(path))
    # The first in the list, so that the neighbour files of the latest file win, as for a script.
    _put_first_in_sys_path(os.path.dirname(os.path.realpath(path)))
    loader = _FileLoader(_choose_module_name(path), path)
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec is not None  # it is only for unknown kinds of files without an explicit loader
    module = importlib.util.module_from_spec(spec)
    # By their modules, classes are found when they are pickled or when their annotations are resolved.
    sys.modules[loader.name] = module
    try:
        loader.exec_module(module)
    except Exception as e:
        del sys.modules[loader.name]
        raise _explain(e, path) from e


def _forget(path: str) -> None:
    """
    Drop the handlers of the same file, if it was loaded or imported before: the new ones replace them.

    This happens in tests that run several operators in one process: the handlers must not be doubled.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and os.path.basename(file) == os.path.basename(path) and os.path.realpath(file) == path:
            get_default_registry().forget(name)


def _load_module(name: str) -> None:
    _put_first_in_sys_path(os.getcwd())
    guard.requested.add(name.partition(".")[0])
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is not None and (name == e.name or name.startswith(f"{e.name}.")):
            hint = " Name modules without the extension." if name.endswith(".py") else ""
            raise LoadingError(
                f"Cannot load the module {name!r}: there is no module {e.name!r}, "
                f"neither in the current directory nor among the installed packages.{hint}"
            ) from e
        raise _explain(e, name) from e
    except Exception as e:
        raise _explain(e, name) from e


def _choose_module_name(path: str) -> str:
    """Name the module by its file, unless the name is taken: e.g. ``operator`` is a module of Python itself."""
    stem, _ = os.path.splitext(os.path.basename(path))
    name, suffix = stem, 1
    while name in sys.modules or name in sys.stdlib_module_names:
        suffix += 1
        name = f"{stem}_{suffix}"
    return name


def _put_first_in_sys_path(path: str) -> None:
    if path in sys.path:
        sys.path.remove(path)
    sys.path.insert(0, path)
    guard.folders.add(path)
    guard.install()


def suggest_files(path: str) -> str:
    """Suggest a file with a similar name for one that does not exist; return an empty text if there is none."""
    folder, name = os.path.split(path)
    try:
        files = [file for file in os.listdir(folder or ".") if file != name]  # a link can be broken
    except OSError:
        return f"There is no directory {folder!r} either." if folder else ""
    stems = [stem for stem, extension in map(os.path.splitext, files) if extension == ".py"]
    guesses = find_similar_names(os.path.splitext(name)[0], stems)  # the extension would make all of them similar
    return f"Did you mean {os.path.join(folder, guesses[0]) + '.py'!r}?" if guesses else ""


def _explain_declarations(exc: DeclarationError) -> str:
    """Describe the problems of the handlers, which contain the places."""
    return "\n  ".join(["Some handlers cannot work as declared:", *exc.problems])


def _explain(exc: Exception, what: str) -> LoadingError:
    if isinstance(exc, DeclarationError):
        return LoadingError(f"Cannot load {what!r}. {_explain_declarations(exc)}")
    if what.endswith(_MANIFESTS):
        return LoadingError(
            f"Cannot load {what!r}: it is not Python code. Apply manifests with kubectl, or with: "
            f"kopf dev --apply {what} …"
        )
    if isinstance(exc, SyntaxError):
        details = "".join(traceback.format_exception_only(exc)).rstrip()
        return LoadingError(f"Cannot load {what!r}: there is a syntax error.\n{details}")
    details = "".join(_format_users_traceback(exc)).rstrip()
    return LoadingError(f"Cannot load {what!r}: its import failed.\n{details}")


def _format_users_traceback(exc: Exception) -> list[str]:
    """Format the traceback from the first line of the user's code."""
    tb: types.TracebackType | None = exc.__traceback__
    while tb is not None and is_framework(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    return traceback.format_exception(type(exc), exc, tb)
