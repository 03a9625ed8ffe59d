"""Decoding: typed values of JSON values; and which arguments of which functions want to be decoded."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

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
from kopf._values.user_functions import get_function

_UNTYPED = (str, int, float, bool, list, dict, Any, object)


def decode(hint: Any, value: Any, *, name: str, kind: str) -> Any:
    """
    Make a value of the type; ``name`` is the field of the object that it is of, ``kind`` is that of the object.

    Raises :class:`ModelMismatchError`.
    """
    try:
        plain = dict(value) if isinstance(value, Mapping) else value
        if not is_of_pydantic(strip_optional(hint)):
            return msgspec.convert(plain, hint, dec_hook=_decode_own)
        return _make_adapter(hint).validate_python(plain)
    except StanzaError as e:
        raise ModelMismatchError(f"The object does not fit {kind}: {name}: {e}") from e
    except msgspec.ValidationError as e:
        text, _, path = str(e).partition(" - at `$")
        raise ModelMismatchError(f"The object does not fit {kind}: {name}{path.rstrip('`')}: {text}") from e
    except ValueError as e:  # of pydantic, which is not imported here
        if type(e).__name__ != "ValidationError":
            raise
        first = getattr(e, "errors")()[0]  # noqa: B009
        path = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in first["loc"])
        raise ModelMismatchError(f"The object does not fit {kind}: {name}{path}: {first['msg']}") from e


def _decode_own(hint: type[Any], value: Any) -> Any:
    if hint in (Quantity, Duration):
        return hint(value)
    raise ValueError(f"Expected `{hint.__name__}`, got `{type(value).__name__}`")


@functools.lru_cache(maxsize=100)
def _make_adapter(hint: Any) -> Any:
    import pydantic  # it is there already, as the class is

    return pydantic.TypeAdapter(hint)


def find_field(hint: Any, path: FieldPath) -> Any:
    """Find the type of a field inside of this one; ``Any`` if there is no telling."""
    for name in path:
        fields = list_fields(strip_optional(hint)) if is_class(strip_optional(hint)) else []
        hint = next((item.hint for item in fields if item.name == name), Any)
    return hint


def is_wanted(annotation: Any, hint: Any) -> bool:
    """Tell if the annotation of an argument is that type, or can be that type."""
    plain = strip_optional(hint)
    return plain not in _UNTYPED and any(unwrap(item).hint == plain for item in list_members(annotation))


def find_strangers(annotation: Any) -> list[str]:
    """Give the names of the classes in the annotation of an argument that could only be decoded."""
    classes = [item for item in map(strip_optional, list_members(annotation)) if is_class(item)]
    return [item.__name__ for item in classes if not item.__module__.startswith("kopf.")]  # such as of bodies


def read_annotations(fn: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """
    Get those annotations of the function that can be resolved, with these names known in any case.

    Its types can be local ones, or be imported for type checkers only.
    """
    function = inspect.unwrap(get_function(fn))
    known, local = {**names, **getattr(function, "__globals__", {})}, _get_closure(function)
    found: dict[str, Any] = {}
    for key, annotation in getattr(function, "__annotations__", {}).items():
        one = types.SimpleNamespace(__annotations__={key: annotation})  # those that are not resolved, are not for us
        with contextlib.suppress(Exception):
            found |= typing.get_type_hints(one, known, local, include_extras=True)
    return found


def _get_closure(function: Any) -> dict[str, Any]:
    code = getattr(function, "__code__", None)
    cells = zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
