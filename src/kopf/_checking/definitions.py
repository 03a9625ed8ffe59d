"""Definitions: do the custom resource definitions have the resources and the fields of the handlers?"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._checking.findings import Finding, find_place
from kopf._checking.sources import Function, Source, list_parameters, walk_own
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._packaging.rules import Situation, find_missing, find_resources, infer_rules, list_defined
from kopf._settings.settings import OperatorSettings
from kopf._values.fields import FieldPath
from kopf._values.resources import Resource
from kopf._values.similar_names import find_similar_names, suggest

Schema = Mapping[str, Any]
Definitions = Mapping[Resource, Schema]

_BASE = frozenset({"apiVersion", "kind", "metadata"})
_ROLES = ("Role", "ClusterRole")
_OPEN = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")


def read_definitions(documents: Iterable[Any]) -> Definitions:
    """Make the resources of the definitions, with their schemas; other documents are ignored."""
    found: dict[Resource, Schema] = {}
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") == "CustomResourceDefinition":
            served = [version for version in document["spec"]["versions"] if version.get("served", True)]
            schemas = [version["schema"]["openAPIV3Schema"] for version in served]
            found.update(zip(list_defined([document]), schemas, strict=True))
    return found


def check_selectors(registry: OperatorRegistry, resources: Collection[Resource]) -> Iterator[Finding]:
    """Find the handlers for resources that are not among these."""
    unmatched = {*registry.get_unmatched(resources)}
    for handler in (*registry.resources, *registry.webhooks):
        for selector in (handler.selector, *getattr(handler, "owns", ())):
            if selector in unmatched and selector.is_specific:
                text = f"{selector} is neither in the given definitions nor built in."
                cure = suggest(selector, resources) or "Add its definition: --crds FILE."
                yield Finding(*find_place(handler.fn), "unknown-resource", text, cure)


def check_versions(registry: OperatorRegistry) -> Iterator[Finding]:
    """Find the handlers of changes for several versions of one resource, which see each other's states as changes."""
    first: dict[tuple[object, ...], str] = {}
    for handler in registry.resources:
        selector = handler.selector
        if isinstance(handler, ChangingHandler) and selector is not None and selector.version is not None:
            names = (selector.plural, selector.kind, selector.singular, selector.shortcut, selector.any_name)
            version = first.setdefault((selector.group, *names), selector.version)
            if version != selector.version:
                text = f"Other handlers are for the same resource in {version}, not in {selector.version}."
                cure = (
                    "Declare all of them for one version: the server converts the objects. Otherwise, Kopf handles "
                    "each object in both versions, and takes their differences for changes, for ever."
                )
                yield Finding(*find_place(handler.fn), "several-versions", text, cure)


def check_permissions(
    registry: OperatorRegistry,
    settings: OperatorSettings,
    resources: Collection[Resource],
    roles: Mapping[str, Sequence[Any]],
) -> Iterator[Finding]:
    """Find the missing permissions of the operator; ``roles`` are the documents of roles by their files."""
    documents = [item for items in roles.values() for item in items if isinstance(item, Mapping)]
    granted = [rule for item in documents if item.get("kind") in _ROLES for rule in item.get("rules") or ()]
    needed = infer_rules(registry, settings, find_resources(registry, resources)[0], Situation())
    for rule in needed:
        if verbs := [*dict.fromkeys(verb for verb, _ in find_missing(rule, granted))]:
            resource = f"{rule.resource}.{rule.group}".rstrip(".")
            text = f"The operator needs to {', '.join(verbs)} {resource}, but no role permits it."
            missing = {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": verbs}
            yield Finding(next(iter(roles)), 1, "missing-permission", text, f"Add the rule: {missing}")


def check_fields(registry: OperatorRegistry, definitions: Definitions, sources: Iterable[Source]) -> Iterator[Finding]:
    """Find the fields that filters, results, or functions name, but the definitions lack."""
    functions = {
        (os.path.realpath(source.path), min(item.lineno for item in handler.node.decorator_list)): handler.node
        for source in sources
        for handler in source.handlers
    }
    for handler in (*registry.resources, *registry.webhooks):
        file, line = find_place(handler.fn)
        function = functions.get((os.path.realpath(file), line))
        paths = [(line, handler.field)] if handler.field else []
        paths += _list_paths(function) if function is not None else []
        if function is not None and handler.stores_result and _returns(function):
            paths.append((function.lineno, ("status", handler.id)))
        schemas = [schema for item, schema in definitions.items() if handler.selector and handler.selector.check(item)]
        for number, path in paths:
            if (cure := _find_cure(path, schemas)) is not None:
                text = f"The definition of {handler.selector} has no {'.'.join(path)}: the server drops such a field."
                yield Finding(file, number, "unknown-field", text, cure)


def _find_cure(path: FieldPath, schemas: Collection[Schema]) -> str | None:
    """Say what to do if all schemas lack the field; return ``None`` if any has it, or if there are no schemas."""
    missing = [_find_missing(schema, path) for schema in schemas]
    if not missing or None in missing:
        return None
    key, known = max(item for item in missing if item is not None)
    guesses = find_similar_names(key, known, limit=1)
    return f"Did you mean {guesses[0]!r}?" if guesses else f"Add {key!r} to the schema."


def _find_missing(schema: Schema, path: FieldPath) -> tuple[str, list[str]] | None:
    """Return the key of the path that the schema lacks, and the keys that it has there; open parts have all keys."""
    for key in () if path[0] in _BASE else path:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        if key not in properties and (schema.get("type") != "object" or others is True or any(map(schema.get, _OPEN))):
            return None
        if key not in properties and not others:
            return key, [*properties]
        schema = properties.get(key, others)
    return None


def _list_paths(function: Function) -> Iterator[tuple[int, FieldPath]]:
    """List the fields of the object that the function names, with the numbers of lines."""
    parameters = list_parameters(function)
    for node in walk_own(function):
        if isinstance(node, ast.Subscript | ast.Call) and len(path := _get_path(node, parameters) or ()) > 1:
            yield node.lineno, path


def _get_path(node: ast.AST, parameters: Collection[str]) -> FieldPath | None:
    """Return the path of a field by its code: ``spec.get("x")``, ``patch.status["x"]``, ``body["spec"]["x"]``."""
    match node:
        case ast.Name(id="spec" | "status" as name) if name in parameters:
            return (name,)
        case ast.Name(id="body" | "patch" as name) if name in parameters:
            return ()
        case (
            ast.Subscript(value=value, slice=ast.Constant(value=str() as key))
            | ast.Attribute(value=ast.Name(id="body" | "patch") as value, attr="spec" | "status" as key)
            | ast.Call(
                func=ast.Attribute(value=value, attr="get" | "setdefault"), args=[ast.Constant(value=str() as key), *_]
            )
        ):
            outer = _get_path(value, parameters)
            return None if outer is None else (*outer, key)
    return None


def _returns(function: Function) -> bool:
    returns = [node.value for node in walk_own(function) if isinstance(node, ast.Return)]
    return any(value is not None and not isinstance(value, ast.Constant) for value in returns)
