"""
Custom resource definitions: their validation, and their kinds.

The rules follow "Extend the Kubernetes API with CustomResourceDefinitions" for ``apiextensions.k8s.io/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kopf_cluster import ages, codec, jsonpaths
from kopf_cluster.cel import budgets as cel_budgets
from kopf_cluster.cel import rules as cel_rules
from kopf_cluster.custom_resources.pruning import prune
from kopf_cluster.kinds import columns, objects, schemas
from kopf_cluster.kinds.kind import STATUS_VERBS, Kind, Obj
from kopf_cluster.kinds.registry import version_priority
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.kinds.scales import ScalePaths
from kopf_cluster.patterns import PatternError, compile_pattern
from kopf_cluster.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    invalid_values,
    needed,
    quoted,
    required,
    unsupported_value,
)

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"

_STRATEGIES: Final = ("None", "Webhook")
_SCOPES: Final = ("Cluster", "Namespaced")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_PARTS: Final = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
}
"""The parts of versions, and their names outside of the versions."""
_IN_VERSION: Final = re.compile(r"spec\.versions\[\d+\]\.(\w+)")
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def settle(new: Obj, old: Obj | None) -> list[FieldError]:
    """Complete a well-typed definition with its defaults and the initial status, and validate it."""
    given = new.get("spec") or {}
    errors = list(_validate(new["metadata"].get("name", ""), given))
    if errors:
        return _name_common_parts(errors, given.get("versions") or [])
    if old is None or new["spec"]["versions"] != old["spec"]["versions"]:
        for index, version in enumerate(new["spec"]["versions"]):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            raw = version["schema"]["openAPIV3Schema"]
            wrong = list(cel_rules.validate_rules(raw, path))
            wrong = wrong or list(cel_budgets.validate(cel_rules.compile_rules(raw), path))
            errors += [*wrong, *_validate_defaults(schemas.parse(raw), path)]
        if errors:
            return _name_common_parts(errors, new["spec"]["versions"])
    spec = new["spec"] = dict(new["spec"])
    names = spec["names"] = dict(spec["names"])
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    if old is None:
        new["status"] = {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": [stored]}
    else:
        known = codec.dig(new, "status", "storedVersions") or []
        versions = known if stored in known else [*known, stored]
        new["status"] = {**(new.get("status") or {}), "storedVersions": versions}
        errors += _validate_change(spec, old["spec"])
        errors += _validate_stored_versions(new)
    return errors


def _name_common_parts(errors: Iterable[FieldError], versions: Sequence[Obj]) -> list[FieldError]:
    """Name what all versions have in common as the API server does: it keeps these parts once, outside of them."""
    common = {
        part: name
        for part, name in _PARTS.items()
        if versions and versions[0].get(part) and all(version.get(part) == versions[0][part] for version in versions)
    }
    named: dict[FieldError, None] = {}
    for error in errors:
        found = _IN_VERSION.match(error.field)
        if found is not None and found[1] in common:
            place = f"spec.{common[found[1]]}"
            field, text = error.field.replace(found[0], place), error.text.replace(found[0], place)
            error = FieldError(field, error.reason, text)
        named[error] = None
    return list(named)


def _validate(name: str, spec: Obj) -> Iterator[FieldError]:
    group, scope, names, versions = spec.get("group"), spec.get("scope"), spec.get("names") or {}, spec.get("versions")
    if not group:
        yield required("spec.group")
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    plural = names.get("plural")
    for field in ("plural", "kind"):
        yield from needed(f"spec.names.{field}", names.get(field))
    yield from invalid_values("spec.names.plural", plural, objects.old_label(plural) if plural else ())
    if name != f"{plural}.{group}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not scope:
        yield required("spec.scope")
    elif scope not in _SCOPES:
        yield unsupported_value("spec.scope", scope, _SCOPES)
    if not versions:
        yield required("spec.versions")
    elif sum(bool(version.get("storage")) for version in versions) != 1:
        shown = [version.get("name") for version in versions]
        yield invalid_value("spec.versions", shown, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions or ()):
        yield from _validate_version(version, f"spec.versions[{index}]")
    if "conversion" in spec:
        yield from _validate_conversion(spec["conversion"])


def _validate_conversion(conversion: Obj) -> Iterator[FieldError]:
    path, strategy, webhook = "spec.conversion", conversion.get("strategy"), conversion.get("webhook")
    if not strategy:
        yield required(f"{path}.strategy")
    elif strategy not in _STRATEGIES:
        yield unsupported_value(f"{path}.strategy", strategy, _STRATEGIES)
    elif strategy == "None":
        if webhook is not None:
            yield forbidden_value(f"{path}.webhook", "should not be set when strategy is not set to Webhook")
    elif webhook is None or "clientConfig" not in webhook:
        yield required(f"{path}.webhook.clientConfig", "required when strategy is set to Webhook")
    else:
        config, versions = webhook["clientConfig"], webhook.get("conversionReviewVersions")
        if bool(config.get("url")) == bool(config.get("service")):
            yield required(f"{path}.webhook.clientConfig", "exactly one of url or service is required")
        if not versions:
            yield required(f"{path}.webhook.conversionReviewVersions")
        elif not {"v1", "v1beta1"} & set(versions):
            yield invalid_value(
                f"{path}.webhook.conversionReviewVersions", versions, "must include at least one of v1, v1beta1"
            )


def _validate_version(version: Obj, path: str) -> Iterator[FieldError]:
    name, root = version.get("name") or "", (version.get("schema") or {}).get("openAPIV3Schema")
    yield from invalid_values(f"{path}.name", name, objects.old_label(name))
    yield from _validate_deprecation(version, f"{path}.deprecationWarning")
    if root is None:
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        if root.get("type") != "object":
            wrong = root.get("type") or ""
            yield invalid_value(f"{path}.schema.openAPIV3Schema.type", wrong, "must be object at the root")
        yield from _validate_schema(root, f"{path}.schema.openAPIV3Schema")
    if (scale := (version.get("subresources") or {}).get("scale")) is not None:
        yield from _validate_scale(scale, f"{path}.subresources.scale")
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _validate_column(column, f"{path}.additionalPrinterColumns[{index}]")
    for index, item in enumerate(version.get("selectableFields") or ()):
        yield from _validate_path(item.get("jsonPath"), f"{path}.selectableFields[{index}].jsonPath")


def _validate_column(column: Obj, path: str) -> Iterator[FieldError]:
    yield from needed(f"{path}.name", column.get("name"))
    if not column.get("type"):
        yield required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    for field, values in (("type", _COLUMN_TYPES), ("format", _COLUMN_FORMATS)):
        if (value := column.get(field)) and value not in values:
            yield invalid_value(f"{path}.{field}", value, f"must be one of {','.join(values)}")
    source = column.get("jsonPath")
    if source and not source.startswith("."):
        yield invalid_value(f"{path}.JSONPath", source, "must be a simple json path starting with .")
    else:
        yield from _validate_path(source, f"{path}.JSONPath")


def _validate_path(text: str | None, path: str) -> Iterator[FieldError]:
    if not text:
        yield required(path)
        return
    try:
        jsonpaths.parse(text)
    except ValueError as error:
        yield invalid_value(path, text, str(error))


def _validate_scale(scale: Obj, path: str) -> Iterator[FieldError]:
    for field, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(field)
        if not value:
            yield required(f"{path}.{field}")
        elif not _is_simple_path(value) or not value.startswith(root):
            yield invalid_value(f"{path}.{field}", value, f"should be a json path under {root[:-1]}")
    value = scale.get("labelSelectorPath")
    if value and not (_is_simple_path(value) and value.startswith((".spec.", ".status."))):
        yield invalid_value(f"{path}.labelSelectorPath", value, "should be a json path under either .spec or .status")


def _is_simple_path(value: str) -> bool:
    return re.fullmatch(r"(\.[A-Za-z_][-A-Za-z0-9_]*)+", value) is not None


def _validate_schema(schema: Obj, path: str) -> Iterator[FieldError]:
    """Yield parts of the schema that could not be applied to objects: unknown types, broken patterns."""
    kind, items, values = schema.get("type"), schema.get("items"), schema.get("additionalProperties")
    if kind is None:
        if not schema.get("x-kubernetes-int-or-string") and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield required(f"{path}.type", "must not be empty for specified object fields")
    elif kind not in _TYPES:
        yield unsupported_value(f"{path}.type", kind, _TYPES)
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if "pattern" in schema:
        try:
            compile_pattern(schema["pattern"])
        except PatternError as error:
            yield invalid_value(f"{path}.pattern", schema["pattern"], f"must be a valid regular expression: {error}")
    for name, sub in (schema.get("properties") or {}).items():
        yield from _validate_schema(sub, f"{path}.properties[{name}]")
    if items is not None:
        yield from _validate_schema(items, f"{path}.items")
    if values not in (None, False) and schema.get("properties"):
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden_value(f"{path}.additionalProperties", text)
    if isinstance(values, dict):
        yield from _validate_schema(values, f"{path}.additionalProperties")


def _validate_defaults(schema: schemas.Schema, path: str) -> Iterator[FieldError]:
    """Yield the errors in all default values of the schema."""
    if "default" in schema.raw:
        default = schema.raw["default"]
        pruned = codec.decode(codec.encode(default))
        if list(prune(pruned, schema, "")):
            yield invalid_value(f"{path}.default", default, "must not have unknown fields")
        yield from schemas.validate(default, schema, f"{path}.default")
    for name, sub in schema.properties.items():
        yield from _validate_defaults(sub, f"{path}.properties[{name}]")
    if schema.items is not None:
        yield from _validate_defaults(schema.items, f"{path}.items")
    if schema.additional is not None:
        yield from _validate_defaults(schema.additional, f"{path}.additionalProperties")


def _validate_change(spec: Obj, old: Obj) -> Iterator[FieldError]:
    if spec["scope"] != old["scope"]:
        yield invalid_value("spec.scope", spec["scope"], "field is immutable")
    for field in ("kind", "plural"):
        if spec["names"][field] != old["names"][field]:
            yield invalid_value(f"spec.names.{field}", spec["names"][field], "field is immutable")


def _validate_stored_versions(definition: Obj) -> Iterator[FieldError]:
    """Yield missing versions in which objects can still be stored."""
    names = {version.get("name") for version in definition["spec"]["versions"]}
    for index, name in enumerate((definition.get("status") or {}).get("storedVersions") or ()):
        if name not in names:
            yield invalid_value(
                f"status.storedVersions[{index}]",
                name,
                "missing from spec.versions; "
                f"{name} was previously a storage version, and must remain in spec.versions until a "
                f"storage migration ensures no data remains persisted in {name} and removes {name} "
                "from status.storedVersions",
            )


def parse_schemas(definition: Obj) -> dict[str, schemas.Schema]:
    """Return the schemas of all versions, by their names."""
    return {
        version["name"]: schemas.parse(version["schema"]["openAPIV3Schema"])
        for version in definition["spec"]["versions"]
    }


def make_kinds(definition: Obj, versions: Mapping[str, schemas.Schema]) -> Iterator[Kind]:
    """Yield the kinds of a valid definition with these schemas: one for each served version."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if version.get("served"):
            yield Kind(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names["singular"],
                list_kind=names["listKind"],
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                has_status="status" in (version.get("subresources") or {}),
                listed_subresources=_list_subresources(spec, version),
                scale=ScalePaths.parse(scale) if (scale := (version.get("subresources") or {}).get("scale")) else None,
                custom=True,
                unconditional_update=False,
                warnings=warn(definition, version),
                storage_version=next(item["name"] for item in spec["versions"] if item.get("storage")),
                columns=columns.from_definition(version.get("additionalPrinterColumns")),
                fields=dict(_selectable_fields(version)),
                schema=versions[version["name"]],
                rules=cel_rules.compile_rules(version["schema"]["openAPIV3Schema"]),
            )


def _list_subresources(spec: Obj, version: Obj) -> dict[str, Subresource]:
    own = spec["group"], version["name"], spec["names"]["kind"]
    known = {"scale": ("autoscaling", "v1", "Scale"), "status": own}
    return {
        name: Subresource(*known[name], STATUS_VERBS) for name in known if name in (version.get("subresources") or {})
    }


def _selectable_fields(version: Obj) -> Iterator[tuple[str, jsonpaths.Path]]:
    for item in version.get("selectableFields") or []:
        yield item["jsonPath"].removeprefix("."), jsonpaths.parse(item["jsonPath"])


def find_conflict(names: Obj, others: Iterable[Kind]) -> tuple[str, str] | None:
    """Return the reason and the message of a conflict with the names of other kinds in the group, or none."""
    nouns = {name for kind in others for name in (kind.plural, kind.singular, *kind.short_names)}
    kinds = {name for kind in others for name in (kind.kind, kind.list_kind)}
    for reason, name, taken in (
        ("PluralConflict", names["plural"], nouns),
        ("SingularConflict", names["singular"], nouns),
        *(("ShortNamesConflict", name, nouns) for name in names.get("shortNames") or ()),
        ("KindConflict", names["kind"], kinds),
        ("ListKindConflict", names["listKind"], kinds),
    ):
        if name in taken:
            return reason, f"{quoted(name)} is already in use"
    return None


def conditions(*, terminating: bool = False, conflict: tuple[str, str] | None = None) -> list[Obj]:
    """Return the conditions of a definition that is served, or cannot be, or is going away."""
    found = (
        [
            _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
            _condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
        if conflict is None
        else [
            _condition("NamesAccepted", "False", *conflict),
            _condition("Established", "False", "NotAccepted", "not all names are accepted"),
        ]
    )
    if terminating:
        found.append(
            _condition("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        )
    return found


def _condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ages.now()}


# Deprecated versions of custom resources, with warnings for all requests.
#
# See "Version deprecation" in "Versions in CustomResourceDefinitions".

_MAX_WARNING: Final = 256


def _validate_deprecation(version: Obj, path: str) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    if not version.get("deprecated"):
        yield invalid_value(path, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > _MAX_WARNING:
        yield invalid_value(path, text, f"must be <= {_MAX_WARNING} characters long")
    if not text:
        yield invalid_value(path, text, "must not be an empty string")
    for index, char in enumerate(text):
        if not char.isprintable():
            yield invalid_value(
                path,
                text,
                "must only contain printable UTF-8 characters; "
                f"non-printable character found at index {len(text[:index].encode())}",
            )
            return


def warn(definition: Obj, version: Obj) -> tuple[str, ...]:
    """Return the warnings about a version: its own one, or that there is a better version."""
    if not version.get("deprecated"):
        return ()
    if version.get("deprecationWarning"):
        return (version["deprecationWarning"],)
    spec = definition["spec"]
    group, kind = spec["group"], spec["names"]["kind"]
    text = f"{group}/{version['name']} {kind} is deprecated"
    better = [
        other["name"]
        for other in spec["versions"]
        if other.get("served")
        and not other.get("deprecated")
        and version_priority(other["name"]) < version_priority(version["name"])
    ]
    return (f"{text}; use {group}/{min(better, key=version_priority)} {kind}" if better else text,)
