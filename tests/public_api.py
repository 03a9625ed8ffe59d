"""
The surface of the public API as a text: every public name, what it is, its parameters and members.

After a change that is meant: ``python -m tests.public_api > tests/public_api.txt``; the difference shows in the review.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import kopf
import kopf.cli
import kopf.on
import kopf.testing

MODULES = {"kopf": kopf, "kopf.on": kopf.on, "kopf.testing": kopf.testing, "kopf.cli": kopf.cli}


def describe_surface() -> str:
    """Describe all of it, line by line, the same on all versions of Python: without the types."""
    lines = [line for name, module in MODULES.items() for line in _describe_module(name, module)]
    return "".join(f"{line}\n" for line in lines)


def _describe_module(name: str, module: types.ModuleType) -> Iterator[str]:
    for item in sorted(module.__all__):
        value = getattr(module, item)
        if not inspect.ismodule(value):
            yield from _describe(f"{name}.{item}", value)


def _describe(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        parameters = "" if issubclass(value, enum.Enum) else _get_parameters(value)
        yield f"class {name}({bases}){parameters}"
        if value.__module__.startswith(("kopf.", "kopf_cluster.")):
            yield from _describe_members(name, value)
    elif inspect.isroutine(value):
        yield f"def {name}{_get_parameters(value)}"
    elif isinstance(value, (str, int, tuple)) and not name.startswith("kopf.__version"):
        yield f"{name} = {value!r}"
    else:
        yield name


def _describe_members(name: str, cls: type) -> Iterator[str]:
    for member, value in sorted(vars(cls).items()):
        if member.startswith("_"):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if inspect.isfunction(value):
            yield f"def {name}.{member}{_get_parameters(value)}"
        elif issubclass(cls, enum.Enum) and isinstance(value, cls):
            yield f"{name}.{member} = {value.value!r}"
        else:
            yield f"{name}.{member}"


def _get_parameters(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = [item.replace(annotation=inspect.Parameter.empty, default=_simplify(item.default)) for item in parameters]
    return str(inspect.Signature(shown))


class _Shown:
    """A default whose own text has an address in it, or is too long."""

    def __repr__(self) -> str:
        return "..."


def _simplify(default: Any) -> Any:
    simple = (str, int, float, bool, type(None), tuple, type(inspect.Parameter.empty))
    return default if isinstance(default, simple) and "0x" not in repr(default) else _Shown()


if __name__ == "__main__":
    sys.stdout.write(describe_surface())
