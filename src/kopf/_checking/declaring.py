"""Rules about the changes and declarations of handlers: views, finalizers, timers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kopf._checking.findings import Finding
from kopf._checking.sources import ACTIVITIES, DeclaredHandler, Source, get_root, list_parameters, walk_own

_VIEWS = frozenset({"body", "spec", "meta", "status", "labels", "annotations", "old", "new"})
_MUTATORS = frozenset({"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"})


def find_problems(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    """Find changes and options without the intended effect."""
    if not handler.kinds <= ACTIVITIES:
        yield from _find_lost_changes(source, handler)
        yield from _find_finalizers(source, handler)
    for item in handler.declarations:
        if item.kind == "timer" and item.is_complete and item.options.keys().isdisjoint(("interval", "idle")):
            text = f"{handler.node.name}() runs only once for each object: there is no interval."
            yield source.report(item.node, "timer-interval", text, "Add interval=... in seconds, or idle=...")


def _find_lost_changes(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    parameters = {*list_parameters(handler.node)}
    assigned = {
        node.id for node in walk_own(handler.node) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    views = parameters & _VIEWS - assigned
    for node in walk_own(handler.node):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node.id == "patch"
            and "patch" in parameters
        ):
            text = "The code replaces the parameter: Kopf never sees the new value."
            yield source.report(node, "lost-change", text, "Change it: `patch.update(...)`, `patch.status[...] = ...`")
        elif (changed := _get_changed(node)) is not None and (root := get_root(changed)) in views:
            text = f"{root} is read-only: the change of {ast.unparse(changed)} fails, or has no effect."
            yield source.report(
                node, "lost-change", text, "Change the object by `patch`, e.g. `patch.spec[...] = ...`; or make a copy."
            )


def _get_changed(node: ast.AST) -> ast.expr | None:
    """Return the expression that the code changes, if any: an item, an attribute, or a whole value."""
    match node:
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
            return node
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr=name))) if name in _MUTATORS:
            return value
    return None


def _find_finalizers(source: Source, handler: DeclaredHandler) -> Iterator[Finding]:
    for node in walk_own(handler.node):
        changed = _get_changed(node)
        if changed is None or get_root(changed) not in ("patch", "body", "meta"):
            continue
        if "finalizers" in ast.unparse(changed):
            text = "The code writes the whole list of finalizers, and drops the ones that others add meanwhile."
            cure = "Declare @kopf.on.delete(...): Kopf adds and removes a finalizer for it. Or use patch.fns."
            yield source.report(node, "manual-finalizer", text, cure)
