"""
Custom resource definitions: what makes them valid, and which kinds come of them.

The rules are those of "Extend the Kubernetes API with CustomResourceDefinitions" for ``apiextensions.k8s.io/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kopf_cluster import ages, jsonpaths
from kopf_cluster.cel import budgets as cel_budgets
from kopf_cluster.cel import rules as cel_rules
from kopf_cluster.custom_resources.specification import Conversion, SchemaProps, Specification, Status, Version
from kopf_cluster.kinds import columns, schemas
from kopf_cluster.kinds.kind import STATUS_VERBS, Kind, Obj
from kopf_cluster.kinds.registry import version_priority
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.kinds.scales import ScalePaths
from kopf_cluster.patterns import PatternError, compile_pattern
from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value, quoted, required, unsupported_value

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_STRATEGIES: Final = ("None", "Webhook")
_SCOPES: Final = ("Cluster", "Namespaced")
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def settle(new: Obj, old: Obj | None) -> list[FieldError]:
    """Complete a definition with its defaults and the initial status, and validate it."""
    try:
        specification = msgspec.convert(new.get("spec") or {}, Specification)
    except msgspec.ValidationError as error:
        return [FieldError("spec", "FieldValueTypeInvalid", f"Invalid value: {error}")]
    errors = list(_validate(new["metadata"].get("name", ""), specification))
    if errors:
        return errors
    if old is None or new["spec"]["versions"] != old["spec"]["versions"]:
        for index, version in enumerate(new["spec"]["versions"]):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            raw = version["schema"]["openAPIV3Schema"]
            wrong = list(cel_rules.validate_rules(raw, path))
            wrong = wrong or list(cel_budgets.validate(cel_rules.compile_rules(raw), path))
            errors += [*wrong, *schemas.validate_defaults(schemas.parse(raw), path)]
        if errors:
            return errors
    spec = new["spec"] = dict(new["spec"])
    names = spec["names"] = dict(spec["names"])
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec["conversion"] = spec.get("conversion") or {"strategy": "None"}
    if old is None:
        stored = [version["name"] for version in spec["versions"] if version.get("storage")]
        new["status"] = {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": stored}
    else:
        errors += _validate_change(spec, old["spec"])
        errors += _validate_stored_versions(new)
    return errors


def _validate(name: str, spec: Specification) -> Iterator[FieldError]:
    if not spec.group:
        yield required("spec.group")
    elif "." not in spec.group:
        yield invalid_value("spec.group", spec.group, "should be a domain with at least one dot")
    for field, value in (("plural", spec.names.plural), ("kind", spec.names.kind)):
        if not value:
            yield required(f"spec.names.{field}")
    if spec.names.plural and not _LABEL.fullmatch(spec.names.plural):
        yield invalid_value("spec.names.plural", spec.names.plural, _LABEL_RULE)
    if name != f"{spec.names.plural}.{spec.group}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not spec.scope:
        yield required("spec.scope")
    elif spec.scope not in _SCOPES:
        yield unsupported_value("spec.scope", spec.scope, _SCOPES)
    if not spec.versions:
        yield required("spec.versions")
    elif sum(version.storage for version in spec.versions) != 1:
        yield invalid_value(
            "spec.versions",
            [version.name for version in spec.versions],
            "must have exactly one version marked as storage version",
        )
    for index, version in enumerate(spec.versions):
        yield from _validate_version(version, f"spec.versions[{index}]")
    if spec.conversion is not None:
        yield from _validate_conversion(spec.conversion)


def _validate_conversion(conversion: Conversion) -> Iterator[FieldError]:
    path = "spec.conversion"
    if not conversion.strategy:
        yield required(f"{path}.strategy")
    elif conversion.strategy not in _STRATEGIES:
        yield unsupported_value(f"{path}.strategy", conversion.strategy, _STRATEGIES)
    elif conversion.strategy == "None":
        if conversion.webhook is not None:
            yield forbidden_value(f"{path}.webhook", "should not be set when strategy is not set to Webhook")
    elif conversion.webhook is None or conversion.webhook.clientConfig is None:
        yield required(f"{path}.webhook.clientConfig", "required when strategy is set to Webhook")
    else:
        config = conversion.webhook.clientConfig
        if bool(config.get("url")) == bool(config.get("service")):
            yield required(f"{path}.webhook.clientConfig", "exactly one of url or service is required")
        versions = conversion.webhook.conversionReviewVersions
        if not versions:
            yield required(f"{path}.webhook.conversionReviewVersions")
        elif not {"v1", "v1beta1"} & set(versions):
            yield invalid_value(
                f"{path}.webhook.conversionReviewVersions", versions, "must include at least one of v1, v1beta1"
            )


def _validate_version(version: Version, path: str) -> Iterator[FieldError]:
    if not _LABEL.fullmatch(version.name):
        yield invalid_value(f"{path}.name", version.name, _LABEL_RULE)
    yield from validate(version, path)
    if version.schema is None or version.schema.openAPIV3Schema is None:
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        root = version.schema.openAPIV3Schema
        if root.type != "object":
            yield invalid_value(f"{path}.schema.openAPIV3Schema.type", root.type or "", "must be object at the root")
        yield from _validate_schema(root, f"{path}.schema.openAPIV3Schema")
    if (scale := (version.subresources or {}).get("scale")) is not None:
        yield from _validate_scale(scale, f"{path}.subresources.scale")
    paths = [
        (f"additionalPrinterColumns[{index}]", column.jsonPath)
        for index, column in enumerate(version.additionalPrinterColumns or [])
    ]
    paths += [
        (f"selectableFields[{index}]", field.jsonPath) for index, field in enumerate(version.selectableFields or [])
    ]
    for place, text in paths:
        if not text:
            yield required(f"{path}.{place}.jsonPath")
            continue
        try:
            jsonpaths.parse(text)
        except ValueError as error:
            yield invalid_value(f"{path}.{place}.jsonPath", text, str(error))


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


def _is_simple_path(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"(\.[A-Za-z_][-A-Za-z0-9_]*)+", value) is not None


def _validate_schema(schema: SchemaProps, path: str) -> Iterator[FieldError]:
    """Refuse what could not be applied later to objects: unknown types, broken patterns."""
    if schema.type is None:
        if not schema.int_or_string and not schema.preserve:
            yield required(f"{path}.type", "must not be empty for specified object fields")
    elif schema.type not in _TYPES:
        yield unsupported_value(f"{path}.type", schema.type, _TYPES)
    if schema.type == "array" and schema.items is None:
        yield required(f"{path}.items", "must be specified")
    if schema.pattern is not None:
        try:
            compile_pattern(schema.pattern)
        except PatternError as error:
            yield invalid_value(f"{path}.pattern", schema.pattern, f"must be a valid regular expression: {error}")
    for name, sub in (schema.properties or {}).items():
        yield from _validate_schema(sub, f"{path}.properties[{name}]")
    if schema.items is not None:
        yield from _validate_schema(schema.items, f"{path}.items")
    if isinstance(schema.additionalProperties, SchemaProps):
        yield from _validate_schema(schema.additionalProperties, f"{path}.additionalProperties")


def _validate_change(spec: Obj, old: Obj) -> Iterator[FieldError]:
    if spec["scope"] != old["scope"]:
        yield invalid_value("spec.scope", spec["scope"], "field is immutable")
    for field in ("kind", "plural"):
        if spec["names"][field] != old["names"][field]:
            yield invalid_value(f"spec.names.{field}", spec["names"][field], "field is immutable")


def _validate_stored_versions(definition: Obj) -> Iterator[FieldError]:
    """A version in which there can still be objects, must not disappear."""
    names = {version.get("name") for version in definition["spec"]["versions"]}
    try:
        status = msgspec.convert(definition.get("status") or {}, Status)
    except msgspec.ValidationError:
        return  # it is refused as mistyped when it is pruned
    for index, name in enumerate(status.storedVersions or ()):
        if name not in names:
            yield invalid_value(
                f"status.storedVersions[{index}]",
                name,
                "missing from spec.versions; "
                f"{name} was previously a storage version, and must remain in spec.versions until a "
                f"storage migration ensures no data remains persisted in {name} and removes {name} "
                "from status.storedVersions",
            )


def make_kinds(definition: Obj) -> Iterator[Kind]:
    """Give the kinds of a valid definition: one for each served version."""
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
                schema=schemas.parse(version["schema"]["openAPIV3Schema"]),
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
    """Tell which name is taken already by other kinds of the group: the reason for machines, and the text."""
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
    """Give the conditions of a definition that is served, or cannot be, or is going away."""
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


# Deprecated versions of custom resources: whoever asks for them is warned.
#
# See "Version deprecation" in "Versions in CustomResourceDefinitions".

_MAX_WARNING: Final = 256


def validate(version: Version, path: str) -> Iterator[FieldError]:
    text, path = version.deprecationWarning, f"{path}.deprecationWarning"
    if text is None:
        return
    if not version.deprecated:
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
    """Give the warnings about a version: its own one, or that there is a better version."""
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
