"""Rules about handlers that are called again: after errors, crashes, restarts, and because of their own writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kopf._checking.findings import Finding
from kopf._checking.sources import (
    ACTIVITIES,
    CHANGES,
    DeclaredHandler,
    Function,
    Source,
    get_root,
    list_assignments,
    list_names,
    walk_own,
)

_VOLATILE = re.compile(
    r"uuid\.uuid[14]|(random|secrets)\.\w+|os\.(urandom|getpid)|time\.(time|time_ns|monotonic|strftime)"
    r"|datetime\.(datetime\.)?(now|utcnow|today)|datetime\.date\.today"
)
_CREATION = re.compile(
    r".*\.create_(namespaced_\w+|cluster_\w+|namespace|persistent_volume|node)|pykube\..*\(\)\.create"
)
_LOOKUP = re.compile(r".*\.(read_\w+|list_\w+|get_\w+|exists|get_or_none)|kopf\.apply")
_VIEWS = frozenset({"body", "meta", "spec", "status"})
_EXISTENCE = re.compile(r"409|[Cc]onflict|[Ee]xist")


def find_problems(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    """Find the problems of repeated calls of the handler."""
    if handler.kinds <= ACTIVITIES:
        return
    for function in source.list_reached(handler):
        if handler.kinds & CHANGES:
            yield from _find_random_names(source, function)
        yield from _find_creations(source, function)
    yield from _find_endless(source, handler)
    yield from _find_globals(source, handler.node)


def _find_random_names(source: Source, function: Function) -> Iterator[Finding]:
    values = _trace_volatile(source, function)
    for node in walk_own(function):
        for value in _list_name_values(node):
            if (origin := _find_volatile(source, function, value, values)) is not None:
                text = f"{function.name}() makes another name in every call: objects of former calls are left behind."
                cure = "Derive the name from the name, uid, or generation of the object."
                yield source.report(
                    origin, "random-name", text, f"{cure} kopf.harmonize_naming(obj, strict=True) does that."
                )
        if _is_generated(node):
            text = f"The server makes another name in every call of {function.name}(): each call makes an object."
            yield source.report(
                node, "random-name", text, "Set `name`, derived from the name of the object, instead of generateName."
            )


def _is_generated(node: ast.AST) -> bool:
    match node:
        case ast.Dict(keys=keys):
            return any(_is_text(key, "generateName") for key in keys)
        case ast.Call(keywords=keywords):
            return any(item.arg == "generate_name" for item in keywords)
    return False


def _list_name_values(node: ast.AST) -> Iterator[ast.expr]:
    """List the expressions that the code uses as names of objects."""
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if _is_text(key, "metadata") and isinstance(value, ast.Dict):
                    yield from (
                        item for name, item in zip(value.keys, value.values, strict=True) if _is_text(name, "name")
                    )
        case ast.Assign(targets=[ast.Subscript(value=ast.Subscript(slice=outer), slice=inner)], value=value):
            if _is_text(outer, "metadata") and _is_text(inner, "name"):
                yield value
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), keywords=keywords):
            if name.endswith("ObjectMeta") or name.startswith("create_"):
                yield from (item.value for item in keywords if item.arg == "name")


def _trace_volatile(source: Source, function: Function) -> dict[str, ast.AST]:
    """Map the variables to the expressions that make them differ from call to call."""
    values: dict[str, ast.AST] = {}
    for node in walk_own(function):
        for name, value in list_assignments(node):
            if (origin := _find_volatile(source, function, value, values)) is not None:
                values[name] = origin
    return values


def _find_volatile(source: Source, function: Function, value: ast.AST, known: dict[str, ast.AST]) -> ast.AST | None:
    """Find the part of the expression that differs from call to call; not the parts that are used only once."""
    match value:
        case ast.BoolOp() | ast.IfExp() | ast.Lambda() | ast.Call(func=ast.Attribute(attr="get" | "setdefault")):
            return None
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Call(func=called) if _VOLATILE.fullmatch(source.get_name(called, function)):
            return value
    origins = (_find_volatile(source, function, child, known) for child in ast.iter_child_nodes(value))
    return next((origin for origin in origins if origin is not None), None)


def _find_creations(source: Source, function: Function) -> Iterator[Finding]:
    calls = [*source.list_calls(function)]
    if any(_LOOKUP.fullmatch(name) for _, name in calls):
        return
    for call, name in calls:
        if _CREATION.fullmatch(name) and not _is_guarded(source, function, call):
            text = (
                f"If {function.name}() is called again, e.g. after a crash, {ast.unparse(call.func)}() fails with 409."
            )
            cure = "Use kopf.apply(), or catch the error and go on if its status is 409 (already exists)."
            yield source.report(call, "not-idempotent", text, cure)


def _is_guarded(source: Source, function: Function, call: ast.Call) -> bool:
    """Tell if the code expects that the object can exist already."""
    for node in source.list_ancestors(call, function):
        if isinstance(node, ast.With | ast.AsyncWith) and "suppress" in ast.unparse(node.items[0]):
            return True
        if isinstance(node, ast.If) and re.search(r"\bnot\b|None", ast.unparse(node.test)):
            return True
        if isinstance(node, ast.Try | ast.TryStar):
            for clause in node.handlers:
                if _EXISTENCE.search(ast.unparse(clause)) or not isinstance(clause.body[-1], ast.Raise):
                    return True
    return False


def _find_endless(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    """Find handlers that trigger themselves, as they write another value in each call."""
    node = handler.node
    is_raw = "event" in handler.kinds
    if not is_raw and not any(item.kind == "update" and "field" not in item.options for item in handler.declarations):
        return
    values = _trace_volatile(source, node)
    for item in walk_own(node):
        if not isinstance(item, ast.Assign) or get_root(item.targets[0]) != "patch":
            continue
        place = ast.unparse(item.targets[0])
        is_seen = is_raw or re.match(r"patch(\.|\[['\"])spec", place)
        is_guarded = any(isinstance(outer, ast.If | ast.Match) for outer in source.list_ancestors(item, node))
        is_counter = isinstance(item.value, ast.BinOp) and not _VIEWS.isdisjoint(list_names(item.value))
        is_other = is_counter or _find_volatile(source, node, item.value, values) is not None
        if is_seen and is_other and not is_guarded:
            text = f"{place} changes in every call of {node.name}(), and the change calls it again, endlessly."
            cure = "Write only what follows from the object, and only if it is not there yet."
            yield source.report(item, "endless-loop", text, cure)


def _find_globals(source: Source, function: Function) -> Iterator[Finding]:
    names = {name for node in walk_own(function) if isinstance(node, ast.Global) for name in node.names}
    for node in walk_own(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
            outer = source.list_ancestors(node, function)
            if any(isinstance(item, ast.If) and node.id in list_names(item.test) for item in outer):
                continue  # it is made when it is needed first
            text = f"All objects share {node.id}, and a restart loses it."
            cure = "Keep it in `memo`, in the status (`patch.status`), or in an index."
            yield source.report(node, "global-state", text, cure)


def _is_text(node: ast.AST | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
