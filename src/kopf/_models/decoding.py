"""Decoding of JSON values into typed values, and the search for arguments that functions want decoded."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from kopf._handlers.declarations import DeclarationError, find_function_place, put_place
from kopf._models.quantities import Duration, Quantity
from kopf._models.typed_fields import (
    is_class,
    is_of_pydantic,
    list_fields,
    list_members,
    strip_optional,
    unwrap,
)
from kopf._values.bodies import StanzaError
from kopf._values.fields import FieldPath
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.similar_names import find_similar_names
from kopf._values.user_functions import get_function

_UNTYPED = (str, int, float, bool, list, dict, dict[str, Any], Any, object)


def decode(hint: Any, value: Any, *, name: str, kind: str) -> Any:
    """
    Decode the value into the type. Raises :class:`ModelMismatchError` if it does not fit.

    ``name`` is the field of the object, and ``kind`` is its kind, for messages.
    """
    try:
        plain = dict(value) if isinstance(value, Mapping) else value
        if not is_of_pydantic(strip_optional(hint)):
            return msgspec.convert(plain, hint, dec_hook=_decode_own)
        return _make_adapter(hint).validate_python(plain)
    except StanzaError as e:
        raise ModelMismatchError(kind, name, str(e)) from e
    except msgspec.ValidationError as e:
        text, _, path = str(e).partition(" - at `$")
        raise ModelMismatchError(kind, f"{name}{path.rstrip('`')}", text) from e
    except ValueError as e:  # from pydantic, which is not imported here
        if type(e).__name__ != "ValidationError":
            raise
        first = getattr(e, "errors")()[0]  # noqa: B009
        path = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in first["loc"])
        raise ModelMismatchError(kind, f"{name}{path}", first["msg"]) from e


def _decode_own(hint: type[Any], value: Any) -> Any:
    if hint in (Quantity, Duration):
        return hint(value)
    raise ValueError(f"Expected `{hint.__name__}`, got `{type(value).__name__}`")


@functools.lru_cache(maxsize=100)
def _make_adapter(hint: Any) -> Any:
    import pydantic  # the class has already imported it

    return pydantic.TypeAdapter(hint)


def find_field(hint: Any, path: FieldPath) -> Any:
    """Find the type of a field inside of this type; ``Any`` if it is unknown."""
    for name in path:
        fields = list_fields(strip_optional(hint)) if is_class(strip_optional(hint)) else []
        hint = next((item.hint for item in fields if item.name == name), Any)
    return hint


def is_wanted(annotation: Any, hint: Any) -> bool:
    """Tell if the annotation of an argument is this type, or a union with it."""
    plain = strip_optional(hint)
    return plain not in _UNTYPED and any(unwrap(item).hint == plain for item in list_members(annotation))


def find_strangers(annotation: Any) -> list[str]:
    """List the names of classes in the annotation of an argument that are possible only for decoded values."""
    classes = [item for item in map(strip_optional, list_members(annotation)) if is_class(item)]
    return [item.__name__ for item in classes if not item.__module__.startswith("kopf.")]  # such as bodies


def name_classes(hint: Any) -> dict[str, Any]:
    """Find the classes with fields inside of the type, by their names."""
    if is_class(hint):
        return {hint.__name__: hint}
    return {name: item for arg in typing.get_args(hint) for name, item in name_classes(arg).items()}


def read_annotations(fn: Callable[..., Any], wanted: Collection[str], names: Mapping[str, Any]) -> dict[str, Any]:
    """
    Resolve the annotations of the ``wanted`` arguments; ``names`` are always known.

    Types can be local, defined later, or imported for type checkers only: then they become ``Any``. Raises
    :class:`kopf.DeclarationError` if a name is absent in the file, or if an annotation is wrong in another way.
    """
    function = inspect.unwrap(get_function(fn))
    given = getattr(function, "__annotations__", {})
    return {name: _resolve(name, given[name], function, names) for name in wanted if name in given}


def _resolve(name: str, annotation: Any, function: Any, names: Mapping[str, Any]) -> Any:
    known, local = {**names, **getattr(function, "__globals__", {})}, _get_closure(function)
    missing: dict[str, Any] = {}
    while True:
        one = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            return typing.get_type_hints(one, {**known, **missing}, local, include_extras=True)[name]
        except Exception as e:
            defined = _find_names(function)
            absent = e.name if isinstance(e, NameError) else None
            if defined is None or (absent is None and missing):
                return Any
            if absent not in defined:
                raise _make_error(name, annotation, function, e, absent, {*known, *defined}) from None
            missing[absent] = names.get(defined[absent]) or _make_unknown(absent, names)


def _find_names(function: Any) -> dict[str, str] | None:
    """Find all names in the file of the function, with their original names before the import."""
    code = getattr(function, "__code__", None)
    linecache.checkcache(code.co_filename if code else None)
    lines = linecache.getlines(code.co_filename, function.__globals__) if code else []
    return _list_names("".join(lines)) if lines else None


@functools.lru_cache(maxsize=10)
def _list_names(source: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the file has been edited since it was loaded
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            found[node.asname or node.name.partition(".")[0]] = node.name.rpartition(".")[2]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = node.id
        elif isinstance(node, ast.ClassDef):
            found[node.name] = node.name
    return found


def _make_unknown(name: str, names: Mapping[str, Any]) -> type[Any]:
    """Make a stand-in for an absent type or module; it contains the model, too."""
    return type(name, (), {**names, "__class_getitem__": classmethod(lambda cls, _: cls)})


def _make_error(
    name: str, annotation: Any, function: Any, error: Exception, absent: str | None, known: Collection[str]
) -> DeclarationError:
    guesses = find_similar_names(absent, known) if absent else ()
    cure = f"Did you mean {guesses[0]!r}?" if guesses else "Correct it, or leave it out."
    text = annotation if isinstance(annotation, str) else repr(annotation)
    problem = f"{function.__qualname__}() takes {name!r} as {text!r}, but {str(error).rstrip('.')}. {cure}"
    return DeclarationError(put_place(find_function_place(function), problem))


def _get_closure(function: Any) -> dict[str, Any]:
    code = getattr(function, "__code__", None)
    cells = zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
