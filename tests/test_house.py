"""
The house: how large its rooms may grow, so that a stranger finds the way by the names of the files.

The limits are for the framework itself; plain data (dataclasses, structs, typed dicts) may have as many fields as the
thing has that it describes. Who exceeds a limit for a reason, says ``Large because ...`` in the docstring.
"""

from __future__ import annotations

import ast
import collections
import functools
import pathlib
from collections.abc import Iterator

import pytest

SRC = pathlib.Path(__file__).parent.parent / "src"
FILES = sorted(SRC.rglob("*.py"))

MAX_STATEMENTS = 270
"""Docstrings aside; the layout of the text, which is that of the formatter, does not matter."""
MAX_METHODS = 12
MAX_ATTRIBUTES = 8
MAX_PARAMETERS = 6
MAX_SAME_NAMES = 2

REASON = "Large because "

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parse_modules() -> dict[str, ast.Module]:
    """All files of the project, by their names; not when this file is imported, as every process of tests does."""
    return {path.relative_to(SRC).as_posix(): ast.parse(path.read_text()) for path in FILES}


def is_plain_data(node: ast.ClassDef) -> bool:
    """Tell if the class only describes its fields."""
    bases = {ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases}
    decorators = {ast.unparse(item).split("(")[0].rsplit(".", 1)[-1] for item in node.decorator_list}
    return "dataclass" in decorators or bool(bases & {"Struct", "NamedTuple", "TypedDict", "Protocol"})


def get_methods(node: ast.ClassDef) -> list[Function]:
    return [item for item in node.body if isinstance(item, Function)]


def get_attributes(node: ast.ClassDef) -> set[str]:
    """The attributes that the methods of the class assign."""
    return {
        item.attr
        for method in get_methods(node)
        for item in ast.walk(method)
        if isinstance(item, ast.Attribute)
        and isinstance(item.ctx, ast.Store)
        and isinstance(item.value, ast.Name)
        and item.value.id == "self"
    }


def count_parameters(node: Function) -> int:
    args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len(args) - bool(args and args[0].arg in ("self", "cls"))


def is_excused(node: ast.ClassDef | Function) -> bool:
    return REASON in (ast.get_docstring(node) or "")


def is_permitted(node: Function) -> bool:
    """The options of commands are the parameters of their functions, in the way of the library."""
    decorators = [ast.unparse(item) for item in node.decorator_list]
    return is_excused(node) or any(text.startswith(("click.", "main.command")) for text in decorators)


def find_large() -> Iterator[str]:
    for name, module in parse_modules().items():
        if not name.startswith("kopf/"):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not is_excused(node):
                if len(get_methods(node)) > MAX_METHODS:
                    yield f"{name}: {node.name} has {len(get_methods(node))} methods"
                if len(get_attributes(node)) > MAX_ATTRIBUTES and not is_plain_data(node):
                    yield f"{name}: {node.name} has {len(get_attributes(node))} attributes"
            elif isinstance(node, Function) and count_parameters(node) > MAX_PARAMETERS and not is_permitted(node):
                yield f"{name}: {node.name}() has {count_parameters(node)} parameters"


def find_imports(name: str) -> set[str]:
    """The modules of the same package that a module imports, for types or when it is used."""
    package = name.split("/")[0]
    parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
    is_package = name.endswith("__init__.py")
    found: set[str] = set()
    for node in ast.walk(parse_modules()[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    known = {get_path(item) for item in found if item == package or item.startswith(f"{package}.")}
    return {item for item in known if item is not None and item != name}


def get_path(module: str) -> str | None:
    path = module.replace(".", "/")
    return next((item for item in (f"{path}.py", f"{path}/__init__.py") if item in parse_modules()), None)


def find_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that lead to each other (Tarjan's strongly connected components)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(node: str) -> None:
        numbers[node] = lowest[node] = len(numbers)
        stack.append(node)
        for other in graph[node]:
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == numbers[node]:
            index = stack.index(node)
            circle = stack[index:]
            del stack[index:]
            if len(circle) > 1:
                circles.append(sorted(circle))

    for node in graph:
        if node not in numbers:
            visit(node)
    return circles


def count_statements(module: ast.Module) -> int:
    statements = [node for node in ast.walk(module) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in statements)


def test_files_are_not_too_long() -> None:
    counts = {name: count_statements(module) for name, module in parse_modules().items()}
    assert {name: count for name, count in counts.items() if count > MAX_STATEMENTS} == {}


def test_names_of_files_tell_them_apart() -> None:
    counts = collections.Counter(path.name for path in FILES if path.name not in ("__init__.py", "__main__.py"))
    assert {name: count for name, count in counts.items() if count > MAX_SAME_NAMES} == {}


def test_classes_and_functions_are_not_too_large() -> None:
    assert sorted(find_large()) == []


@functools.cache
def make_graph(package: str) -> dict[str, set[str]]:
    """The modules and what they import, but the face: it is imported by nobody below it, as the contracts check."""
    graph = {name: find_imports(name) for name in parse_modules() if name.startswith(f"{package}/")}
    faces = {f"{package}/__init__.py", f"{package}/__main__.py"}
    return {name: imports - faces for name, imports in graph.items() if name not in faces}


def join_folders(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The rooms of a package and what they import; a module beside the rooms is a room of its own."""
    joined: dict[str, set[str]] = {}
    for name, imports in graph.items():
        joined.setdefault(get_room(name), set()).update(map(get_room, imports))
    return joined


def get_room(name: str) -> str:
    return "/".join(name.split("/")[:2])


@pytest.mark.parametrize("package", ["kopf", "kopf_cluster"])
def test_imports_make_no_circles(package: str) -> None:
    assert find_circles(make_graph(package)) == []


@pytest.mark.parametrize("package", ["kopf", "kopf_cluster"])
def test_imports_make_no_circles_of_rooms(package: str) -> None:
    assert find_circles(join_folders(make_graph(package))) == []


def test_every_file_says_what_it_is() -> None:
    assert [name for name, module in parse_modules().items() if not ast.get_docstring(module)] == []
