"""One version of a custom resource in its definition: the schema, the columns, the subresources."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from kopf._models.markers import Rule
from kopf._models.structural import JSON, SchemaError, make_schema
from kopf._models.typed_fields import describe_class
from kopf._values.similar_names import find_similar_names

_DATE_PATHS = frozenset({".metadata.creationTimestamp", ".metadata.deletionTimestamp"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceDescription:
    """The declaration of a kind in one version: see the keywords of :class:`kopf.CustomResource`."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    scope: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: Mapping[str, str | Mapping[str, Any]]
    scale: tuple[str, ...] | None
    selectable: tuple[str, ...]
    rules: tuple[Rule, ...]
    storage: bool
    served: bool
    deprecated: bool | str
    spec: Any
    status: Any
    cls: type[Any]

    @property
    def title(self) -> str:
        """The name of the kind in messages."""
        return f"{self.kind} of {self.group}/{self.version}"

    @property
    def name(self) -> str:
        """The name of its definition."""
        return f"{self.plural}.{self.group}"


def make_version(resource: ResourceDescription) -> JSON:
    """
    Make the item of ``versions``.

    Raises :class:`SchemaError` if a type has no schema, and :class:`ValueError` if anything else is wrong.
    """
    _check_names(resource)
    schema = _make_schema(resource)
    version: JSON = {
        "name": resource.version,
        "served": resource.served,
        "storage": resource.storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    if resource.deprecated:
        version["deprecated"] = True
        if isinstance(resource.deprecated, str):
            version["deprecationWarning"] = resource.deprecated
    if resource.scale is not None:
        version["subresources"]["scale"] = _make_scale(resource.scale, schema)
    if resource.columns:
        version["additionalPrinterColumns"] = [_make_column(*item, schema) for item in resource.columns.items()]
    if resource.selectable:
        paths = [_check_path(path, schema)[0] for path in resource.selectable]
        version["selectableFields"] = [{"jsonPath": path} for path in paths]
    return version


def _check_names(resource: ResourceDescription) -> None:
    if "." not in resource.group:
        raise ValueError(f"the group must be a domain with a dot, e.g. 'example.com', not {resource.group!r}.")
    if not re.fullmatch(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?", resource.version):
        raise ValueError(f"the version must be like v1 or v1beta1, not {resource.version!r}.")
    if resource.scope not in ("Namespaced", "Cluster"):
        raise ValueError(f"the scope is either 'Namespaced' or 'Cluster', not {resource.scope!r}.")
    for name in (resource.plural, resource.singular, *resource.short_names, *resource.categories):
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
            raise ValueError(f"names are of lowercase letters, digits, and dashes, not {name!r}.")


def _make_schema(resource: ResourceDescription) -> JSON:
    spec, status = make_schema(resource.spec, resource.cls), make_schema(resource.status, resource.cls)
    for name, part, hint in (("spec", spec, resource.spec), ("status", status, resource.status)):
        if part.get("type") != "object":
            raise SchemaError(resource.cls, name, "it must be a class with fields, or dict[str, Any].")
        if name == "status" and "required" in part:
            names = ", ".join(part["required"])
            raise SchemaError(hint, "", f"a new object has no status, so its fields need default values: {names}.")
    schema: JSON = {"type": "object", "description": describe_class(resource.cls)}
    schema["properties"] = {"spec": spec, "status": {**status, "x-kubernetes-preserve-unknown-fields": True}}
    if "required" in spec:
        schema["required"] = ["spec"]
    if resource.rules:
        schema["x-kubernetes-validations"] = [rule.render() for rule in resource.rules]
    return {name: value for name, value in schema.items() if value is not None}


def _make_column(title: str, column: Any, schema: JSON) -> JSON:
    given = {"jsonPath": column} if isinstance(column, str) else dict(column)
    if not isinstance(given.get("jsonPath"), str):
        raise ValueError(f"the column {title!r} must be a path, or have one as its jsonPath.")
    path, kind = _check_path(given["jsonPath"], schema)
    return {"name": title, "type": kind, **given, "jsonPath": path}


def _make_scale(paths: tuple[str, ...], schema: JSON) -> JSON:
    names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    if len(paths) not in (2, 3):
        raise ValueError('scale= is two or three paths, e.g. (".spec.replicas", ".status.replicas").')
    return {name: _check_path(path, schema)[0] for name, path in zip(names, paths, strict=False)}


def _check_path(path: str, schema: JSON) -> tuple[str, str]:
    """Complete a path, and find the type of its column. Raises :class:`ValueError` if there is no such field."""
    path = f".{path.removeprefix('.')}"
    if path in _DATE_PATHS:
        return path, "date"
    if path.startswith(".metadata."):
        return path, "string"
    kind = "string"
    for name in path.partition("[")[0].strip(".").split("."):  # up to an item of a list
        properties = schema.get("properties")
        if properties is None or (schema.get("x-kubernetes-preserve-unknown-fields") and name not in properties):
            return path, "string"
        if name not in properties:
            guesses = find_similar_names(name, properties)
            hint = f" Did you mean {guesses[0]!r}?" if guesses else ""
            raise ValueError(f"there is no field {name!r} for the path {path!r}.{hint}")
        schema = properties[name]
        kind = _name_column_type(schema)
    return path, kind


def _name_column_type(schema: JSON) -> str:
    if schema.get("format") in ("date", "date-time"):
        return "date"
    kind = schema.get("type", "string")
    return kind if kind in ("integer", "number", "boolean") else "string"
