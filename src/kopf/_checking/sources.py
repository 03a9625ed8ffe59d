"""Sources: a file of an operator as a syntax tree, with its handlers, and with the full names of called functions."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from kopf._checking.findings import Finding

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_DECORATORS = ("kopf.on.", "kopf.")
ACTIVITIES = frozenset({"startup", "cleanup", "login", "probe"})
CHANGES = frozenset({"create", "update", "delete", "resume", "field", "subhandler"})
_OTHERS = frozenset({"event", "index", "validate", "mutate", "daemon", "timer", "reconcile", "convert"})
_KINDS = ACTIVITIES | CHANGES | _OTHERS


@dataclasses.dataclass(frozen=True, eq=False)
class Declaration:
    """One decorator of a handler."""

    kind: str
    """The name of the decorator, e.g. ``"create"``."""
    node: ast.expr
    options: Mapping[str, ast.expr]
    is_complete: bool
    """Whether all options are known: there is no ``**options``."""


@dataclasses.dataclass(frozen=True, eq=False)
class DeclaredHandler:
    """A function with decorators of handlers."""

    node: Function
    declarations: tuple[Declaration, ...]

    @functools.cached_property
    def kinds(self) -> frozenset[str]:
        """The names of the decorators."""
        return frozenset(item.kind for item in self.declarations)

    @property
    def is_async(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef)


class Source:
    """One file. Raises :class:`SyntaxError` if its syntax is wrong."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text, path)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self._names: dict[ast.AST, Mapping[str, str]] = {}
        self.functions = {
            node.name: node
            for node in ast.walk(self.tree)
            if isinstance(node, Function) and not isinstance(self.parents[node], ast.ClassDef)
        }
        self.handlers = [
            handler
            for node in ast.walk(self.tree)
            if isinstance(node, Function) and (handler := self._make_handler(node)).declarations
        ]

    def report(self, node: ast.AST, rule: str, text: str, cure: str) -> Finding:
        """Make a finding at the line of the node."""
        return Finding(self.path, getattr(node, "lineno", 0), rule, text, cure)

    def _make_handler(self, node: Function) -> DeclaredHandler:
        found = []
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            name = self.get_name(decorator if call is None else call.func, self.tree)
            kind = name.rpartition(".")[2]
            if kind in _KINDS and name.removesuffix(kind) in _DECORATORS:
                keywords = call.keywords if call is not None else []
                options = {item.arg: item.value for item in keywords if item.arg is not None}
                found.append(Declaration(kind, decorator, options, len(options) == len(keywords)))
        return DeclaredHandler(node, tuple(found))

    def get_name(self, node: ast.AST, scope: ast.AST) -> str:
        """
        Resolve the full name of an expression, by its origin: ``requests.Session().get``.

        ``scope`` is the function (or the whole tree) with the variables of the expression.
        """
        match node:
            case ast.Name(id=name):
                return self._get_names(scope).get(name, name)
            case ast.Attribute(value=value, attr=name):
                return f"{self.get_name(value, scope)}.{name}"
            case ast.Call(func=function):
                return f"{self.get_name(function, scope)}()"
            case ast.Subscript(value=value):
                return f"{self.get_name(value, scope)}[]"
            case ast.Await(value=value):
                return self.get_name(value, scope)
        return "?"

    def _get_names(self, scope: ast.AST) -> Mapping[str, str]:
        """Map the variables to the full names of their values, as far as these are obvious."""
        if scope not in self._names:
            is_file = scope is self.tree
            names = {} if is_file else dict(self._get_names(self.tree))
            self._names[scope] = names
            if is_file:
                names.update(_list_imports(self.tree))
            elif isinstance(scope, Function):
                names.update((name, name) for name in list_parameters(scope))
            for node in walk_own(scope):
                for target, value in list_assignments(node):
                    names[target] = self.get_name(value, scope)
        return self._names[scope]

    def list_ancestors(self, node: ast.AST, scope: ast.AST) -> Iterator[ast.AST]:
        """Iterate over the nodes around the node, from inside outwards, up to the scope."""
        while (node := self.parents[node]) is not scope:
            yield node

    def list_calls(self, scope: ast.AST) -> Iterator[tuple[ast.Call, str]]:
        """List the calls that the function itself makes, with the full names of called functions."""
        for node in walk_own(scope):
            if isinstance(node, ast.Call):
                yield node, self.get_name(node.func, scope)

    def list_reached(self, handler: DeclaredHandler) -> list[Function]:
        """List the handler and the functions of this file that it calls, directly or not."""
        reached = [handler.node]
        for function in reached:  # it grows meanwhile
            for call, _ in self.list_calls(function):
                callee = self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
                if callee is not None and callee not in reached:
                    reached.append(callee)
        return reached


def walk_own(scope: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the code that runs when the function is called (or the file is loaded)."""
    return walk(scope.body if isinstance(scope, Function | ast.Module) else [scope])


def walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Iterate over the code in its order, but not over the bodies of inner functions and classes."""
    pending = [*reversed(nodes)]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending += reversed([*ast.iter_child_nodes(node)])


def list_parameters(function: Function) -> list[str]:
    """List the names of the parameters, without ``*args`` and ``**kwargs``."""
    args = function.args
    return [item.arg for item in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


def list_names(node: ast.AST) -> set[str]:
    """List the names of the variables in the code."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def get_root(node: ast.AST) -> str | None:
    """Return the name of the variable that the expression begins with: ``spec`` of ``spec["x"].get("y")``."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def list_assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """List the variables that the code assigns, with their values."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
            yield name, value
