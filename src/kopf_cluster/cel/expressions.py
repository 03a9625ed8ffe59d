"""
Expressions of the Common Expression Language: compiled once, evaluated for many objects.

The language is that of the official library (``cel-expr-python``, a binding of the C++ implementation), with the
functions that Kubernetes adds. The library comes with the extra ``kopf[dev]``; it is loaded when the first
expression is compiled, and nothing else needs it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kopf_cluster.cel import functions as cel_functions

if TYPE_CHECKING:
    from cel_expr_python import cel

_CODES: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NO_KEY: Final = re.compile(r'^Key not found in map : "(.*)"$')


class CompilationError(ValueError):
    """An expression is not of the language, or is of a part of it that is not supported."""


class EvaluationError(ValueError):
    """An expression has no value for these objects, e.g. there is no such field."""


class Expression:
    """A compiled expression."""

    def __init__(self, text: str, program: cel.Expression) -> None:
        self.text = text
        self._program = program

    @property
    def result_type(self) -> str:
        """The type of the result as far as it is known, e.g. ``BOOL``, or ``DYN`` if it is not."""
        return str(self._program.return_type().name())

    def serialize(self) -> bytes:
        """Return the syntax tree with its types: a message of ``cel/expr/checked.proto``."""
        serialized: bytes = self._program.serialize()
        return serialized

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Evaluate the expression with plain JSON-like values, or raise `EvaluationError`."""
        try:
            value = self._program.eval(data=variables)
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise EvaluationError(_clean(str(error))) from None
        if value.type().name() == "ERROR":
            raise EvaluationError(_clean(str(value.value())))
        return value.plain_value()


def _clean(text: str) -> str:
    text = _CODES.sub("", text).strip().strip("'")
    if match := _NO_KEY.match(text):
        return f"no such key: {match[1]}"
    if text.startswith("No matching overloads found"):
        return "no such overload"
    return {"divide by zero": "division by zero"}.get(text, text)


def compile_expression(text: str, variables: Mapping[str, str]) -> Expression:
    """
    Compile an expression with the given variables: their names to their types.

    The types are ``dyn``, ``bool``, ``int``, ``double``, ``string``, ``bytes``, ``list(…)``, ``map(string,…)``.
    Raise `CompilationError`, which tells where the error is, in the way of the API server.
    """
    return _compile(text, tuple(sorted(variables.items())))


@functools.lru_cache(maxsize=4096)
def _compile(text: str, variables: tuple[tuple[str, str], ...]) -> Expression:
    try:
        return Expression(text, _environment(variables).compile(text))
    except RuntimeError as error:
        raise CompilationError(f"compilation failed: {_CODES.sub('', str(error))}") from None


@functools.lru_cache(maxsize=64)
def _environment(variables: tuple[tuple[str, str], ...]) -> cel.Env:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings
    except ImportError as error:
        raise CompilationError(
            "compilation failed: expressions are not supported by this local cluster, as the "
            f"library cel-expr-python is not installed ({error}); install kopf[dev]"
        ) from None
    extensions = [
        ext_strings.ExtStrings(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_encoders.ExtEncoders(),
        ext_bindings.ExtBindings(),
    ]
    overloads: dict[str, list[Any]] = {}
    for function in cel_functions.FUNCTIONS:
        overloads.setdefault(function.name, []).append(
            cel.Overload(
                f"{function.name.replace('.', '_')}_{'_'.join(function.parameters)}",
                return_type=_type(function.result),
                parameters=[_type(name) for name in function.parameters],
                is_member=function.member,
                impl=function.call,
            )
        )
    return cel.NewEnv(
        variables={name: _type(kind) for name, kind in variables},
        extensions=extensions,
        functions=[cel.FunctionDecl(name, items) for name, items in overloads.items()],
    )


@functools.cache
def _type(name: str) -> cel.Type:
    from cel_expr_python import cel

    if name.startswith("list("):
        return cel.Type.List(_type(name[len("list(") : -1]))
    if name.startswith("map(string,"):
        return cel.Type.Map(cel.Type.STRING, _type(name[len("map(string,") : -1]))
    simple: cel.Type = getattr(cel.Type, name.upper())
    return simple
