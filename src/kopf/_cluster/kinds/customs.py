"""
Custom resource definitions: what makes them valid, and which kinds come of them.

The rules are those of "Extend the Kubernetes API with CustomResourceDefinitions" for ``apiextensions.k8s.io/v1``.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .. import ages, jsonpaths, schemas
from ..statuses import FieldError, invalid_value, required
from . import columns
from .kind import Kind, Obj

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VERSION: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def settle(new: Obj, old: Obj | None) -> list[FieldError]:
    """Complete a definition with its defaults and the initial status, and validate it."""
    if not isinstance(new.get("spec"), dict):
        return [required("spec")]
    spec = new["spec"] = dict(new["spec"])
    errors = list(_validate(new["metadata"].get("name", ""), spec))
    if errors:
        return errors
    names = spec["names"] = dict(spec["names"])
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec.setdefault("conversion", {"strategy": "None"})
    if old is None:
        stored = [version["name"] for version in spec["versions"] if version["storage"]]
        new["status"] = {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": stored}
    else:
        errors += _validate_change(spec, old["spec"])
    return errors


def _validate(name: str, spec: Obj) -> Iterator[FieldError]:
    group, names, versions, scope = (spec.get(key) for key in ("group", "names", "versions", "scope"))
    names = names if isinstance(names, dict) else {}
    if not isinstance(group, str) or not group:
        yield required("spec.group")
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    for field in ("plural", "kind"):
        if not isinstance(names.get(field), str) or not names[field]:
            yield required(f"spec.names.{field}")
    if isinstance(names.get("plural"), str) and not _LABEL.fullmatch(names["plural"]):
        yield invalid_value("spec.names.plural", names["plural"],
                            "a lowercase RFC 1035 label must consist of lower case alphanumeric characters or '-', "
                            "start with an alphabetic character, and end with an alphanumeric character")
    if name != f"{names.get('plural')}.{group}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Namespaced", "Cluster"):
        yield FieldError("spec.scope", "FieldValueNotSupported", f'Unsupported value: "{scope}": '
                                                                 'supported values: "Cluster", "Namespaced"')
    if not isinstance(versions, list) or not versions or not all(isinstance(item, dict) for item in versions):
        yield required("spec.versions")
        return
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value("spec.versions", [version.get("name") for version in versions],
                            "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        yield from _validate_version(version, f"spec.versions[{index}]")
    conversion = spec.get("conversion")
    if isinstance(conversion, dict) and conversion.get("strategy") not in ("None", None):
        yield FieldError("spec.conversion.strategy", "FieldValueNotSupported",
                         f"Unsupported value: \"{conversion['strategy']}\": "
                         "the local cluster does not support conversion webhooks; supported values: \"None\"")


def _validate_version(version: Obj, path: str) -> Iterator[FieldError]:
    name = version.get("name")
    if not isinstance(name, str) or not _VERSION.fullmatch(name):
        yield invalid_value(f"{path}.name", name, "must be a DNS label, e.g. v1")
    for flag in ("served", "storage"):
        if not isinstance(version.get(flag), bool):
            yield required(f"{path}.{flag}")
    schema = version.get("schema")
    raw = schema.get("openAPIV3Schema") if isinstance(schema, dict) else None
    if not isinstance(raw, dict):
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        yield from _validate_schema(raw, f"{path}.schema.openAPIV3Schema", root=True)
    for list_name, field in (("additionalPrinterColumns", "jsonPath"), ("selectableFields", "jsonPath")):
        for index, item in enumerate(version.get(list_name) or []):
            try:
                jsonpaths.parse(item[field])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                yield invalid_value(f"{path}.{list_name}[{index}].{field}", None, str(error))


_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def _validate_schema(raw: Mapping[str, Any], path: str, *, root: bool = False) -> Iterator[FieldError]:
    """Refuse what could not be applied later to objects: unknown types, wrong nesting, broken patterns."""
    kind = raw.get("type")
    if root and kind != "object":
        yield invalid_value(f"{path}.type", kind or "", "must be object at the root")
    if kind is None:
        free = raw.get("x-kubernetes-int-or-string") or raw.get("x-kubernetes-preserve-unknown-fields")
        if not free:
            yield required(f"{path}.type", "must not be empty for specified object fields")
    elif kind not in _TYPES:
        supported = ", ".join(f'"{name}"' for name in _TYPES)
        yield FieldError(f"{path}.type", "FieldValueNotSupported",
                         f'Unsupported value: "{kind}": supported values: {supported}')
    if isinstance(raw.get("pattern"), str):
        try:
            re.compile(raw["pattern"])
        except re.error as error:
            yield invalid_value(f"{path}.pattern", raw["pattern"], f"must be a valid regular expression: {error}")
    properties = raw.get("properties")
    for name, sub in (properties.items() if isinstance(properties, dict) else ()):
        if isinstance(sub, dict):
            yield from _validate_schema(sub, f"{path}.properties[{name}]")
        else:
            yield invalid_value(f"{path}.properties[{name}]", sub, "must be an object")
    for name in ("items", "additionalProperties"):
        if isinstance(raw.get(name), dict):
            yield from _validate_schema(raw[name], f"{path}.{name}")


def _validate_change(spec: Obj, old: Obj) -> Iterator[FieldError]:
    if spec["scope"] != old["scope"]:
        yield invalid_value("spec.scope", spec["scope"], "field is immutable")
    for field in ("kind", "plural"):
        if spec["names"][field] != old["names"][field]:
            yield invalid_value(f"spec.names.{field}", spec["names"][field], "field is immutable")


def make_kinds(definition: Obj) -> Iterator[Kind]:
    """Give the kinds of a valid definition: one for each served version."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if version["served"]:
            yield Kind(
                group=spec["group"], version=version["name"], kind=names["kind"], plural=names["plural"],
                singular=names["singular"], list_kind=names["listKind"],
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                has_status="status" in (version.get("subresources") or {}),
                custom=True, unconditional_update=False,
                columns=columns.from_definition(version.get("additionalPrinterColumns")),
                fields=dict(_selectable_fields(version)),
                schema=schemas.parse(version["schema"]["openAPIV3Schema"]),
            )


def _selectable_fields(version: Obj) -> Iterator[tuple[str, jsonpaths.Path]]:
    for item in version.get("selectableFields") or []:
        yield item["jsonPath"].removeprefix("."), jsonpaths.parse(item["jsonPath"])


def conditions(accepted: bool = True, *, terminating: bool = False) -> list[Obj]:
    """Give the conditions of a definition that is served, or is going away."""
    status = "True" if accepted else "False"
    found = [
        _condition("NamesAccepted", status, "NoConflicts", "no conflicts found"),
        _condition("Established", status, "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    if terminating:
        found.append(_condition("Terminating", "True", "InstanceDeletionInProgress",
                                "CustomResource deletion is in progress"))
    return found


def _condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ages.now()}
