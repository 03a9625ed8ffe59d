"""The fields of classes that describe parts of objects, for all supported libraries."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import sys
import textwrap
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeGuard

import msgspec

MISSING: Any = dataclasses.MISSING
"""The default value of a field without a default value that is known in advance."""

_NO_DEFAULTS = {"_MISSING_TYPE", "NoDefaultType", "UnsetType", "PydanticUndefinedType"}
_CONTAINERS = (list, tuple, set, frozenset, dict)


class TypedField(NamedTuple):
    """A field of a class."""

    name: str
    """The name in JSON."""
    attribute: str
    """The name in Python."""
    hint: Any
    is_required: bool
    default: Any = MISSING


class Unwrapped(NamedTuple):
    """A type without annotations and aliases."""

    hint: Any
    metadata: tuple[Any, ...] = ()
    """The annotations of the type."""


def is_class(hint: Any) -> TypeGuard[type[Any]]:
    """Tell if it is a class with typed fields."""
    return isinstance(hint, type) and (
        issubclass(hint, msgspec.Struct)
        or dataclasses.is_dataclass(hint)
        or typing.is_typeddict(hint)
        or is_of_pydantic(hint)
    )


def is_of_pydantic(cls: Any) -> bool:
    """Tell if pydantic decodes the class: its models, its data classes."""
    return "pydantic" in sys.modules and hasattr(cls, "__pydantic_validator__")


def unwrap(hint: Any) -> Unwrapped:
    """Resolve annotated, new, and aliased types."""
    metadata: tuple[Any, ...] = ()
    while True:
        if typing.get_origin(hint) is Annotated:
            metadata = (*metadata, *itertools.chain.from_iterable(map(_expand, hint.__metadata__)))
            hint = hint.__origin__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            (hint,) = typing.get_args(hint)
        else:
            return Unwrapped(hint, metadata)


def _expand(item: Any) -> tuple[Any, ...]:
    """Add the metadata of a field of pydantic."""
    return (item, *item.metadata) if type(item).__name__ == "FieldInfo" else (item,)


def annotate(hint: Any, metadata: tuple[Any, ...]) -> Any:
    """Annotate the type, if there are any metadata."""
    return Annotated[hint, *metadata] if metadata else hint


def ask_pydantic(hint: Any, metadata: tuple[Any, ...]) -> dict[str, Any]:
    """Get the JSON schema of the type with the metadata."""
    import pydantic  # one of its classes has already imported it

    fields = [item for item in metadata if isinstance(item, pydantic.fields.FieldInfo)]
    others = tuple(item for item in metadata if item not in fields)
    schema: dict[str, Any] = pydantic.TypeAdapter(annotate(hint, others)).json_schema()
    for field in fields:
        schema |= field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        schema |= {} if field.description is None else {"description": field.description}
    return schema


def list_members(hint: Any) -> tuple[Any, ...]:
    """List the members of a union, or the only type if it is not a union."""
    hint = unwrap(hint).hint
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def strip_optional(hint: Any) -> Any:
    """Get the type without ``None``; a union if there are several others."""
    rest = [unwrap(item).hint for item in list_members(hint) if item not in (types.NoneType, msgspec.UnsetType)]
    return rest[0] if len(rest) == 1 else unwrap(hint).hint


def list_fields(cls: type[Any]) -> list[TypedField]:
    """List the fields. Raises :class:`NameError` if any of their types is not defined."""
    if is_of_pydantic(cls):
        return [_convert_pydantic(name, field) for name, field in vars(cls)["__pydantic_fields__"].items()]
    if issubclass(cls, msgspec.Struct):
        return [
            TypedField(
                field.encode_name, field.name, field.type, field.required, _get_default(field, field.default_factory)
            )
            for field in msgspec.structs.fields(cls)
        ]
    hints = typing.get_type_hints(cls, include_extras=True)
    if typing.is_typeddict(cls):
        required: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
        # If annotations are postponed (PEP 563), the class does not know the marks of single fields.
        marks = {typing.Required: True, typing.NotRequired: False}
        return [
            TypedField(name, name, hint, marks.get(typing.get_origin(hint), name in required))
            for name, hint in hints.items()
        ]
    return [
        TypedField(
            field.name,
            field.name,
            hints[field.name],
            field.default is field.default_factory,  # both are missing
            _get_default(field, field.default_factory),
        )
        for field in dataclasses.fields(cls)
        if field.init
    ]


def _convert_pydantic(name: str, field: Any) -> TypedField:
    alias = field.validation_alias if isinstance(field.validation_alias, str) else field.alias
    return TypedField(
        alias or name,
        name,
        annotate(field.annotation, (field,)),
        field.is_required(),
        _get_default(field, field.default_factory),
    )


def _get_default(field: Any, factory: Any) -> Any:
    """Get the default as JSON, for the schema. The value of an arbitrary factory is unknown."""
    if factory in _CONTAINERS:
        return {} if factory is dict else []
    if is_class(factory):
        return MISSING if any(item.is_required for item in list_fields(factory)) else {}
    if field.default is None or type(field.default).__name__ in _NO_DEFAULTS:
        return MISSING
    return msgspec.json.decode(msgspec.json.encode(field.default, enc_hook=_encode, order="deterministic"))


def _encode(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else str(value)


def describe_class(cls: type[Any]) -> str | None:
    """Get the docstring of the class, if it is not generated or inherited."""
    text = vars(cls).get("__doc__")
    is_generated = dataclasses.is_dataclass(cls) and (text or "").startswith(f"{cls.__name__}(")
    return None if not text or is_generated else inspect.cleandoc(text)


@functools.lru_cache(maxsize=1000)  # explorations make the definitions hundreds of times
def describe_fields(cls: type[Any]) -> Mapping[str, str]:
    """Get the docstrings after the fields, by the attributes, if the source is available."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            found |= _find_docstrings(ast.parse(textwrap.dedent(inspect.getsource(base))).body[0])
    return found


def _find_docstrings(node: ast.stmt) -> dict[str, str]:
    body = node.body if isinstance(node, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
