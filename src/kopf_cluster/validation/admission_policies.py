"""
Admission policies in CEL, which are only kept here, and their bindings: what they match, and whether they compile.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, duplicate_value, invalid_value, required, unsupported_value
from kopf_cluster.validation import object_names
from kopf_cluster.validation.nested_selectors import validate_selector
from kopf_cluster.validation.webhook_configurations import find_fault, validate_conditions, validate_rule

Obj: TypeAlias = dict[str, Any]

_NOTHING: Final = "validations or auditAnnotations must contain at least one item"
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_BOTH: Final = ("must not contain both Deny and Warn (repeating the same validation failure information in the API "
                "response and headers serves no purpose)")
_CHOICES: Final = {"failurePolicy": ("Fail", "Ignore"), "matchPolicy": ("Equivalent", "Exact")}
_VARIABLES: Final = ("object", "oldObject", "request", "namespaceObject", "variables")


def validate_policy(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from _validate_choice(spec, "failurePolicy", "spec")
    if "paramKind" in spec:
        yield from _validate_parameters(spec["paramKind"], "spec.paramKind")
    matched = spec.get("matchConstraints")
    if matched is None:
        yield required("spec.matchConstraints")
    else:
        yield from _validate_resources(matched, "spec.matchConstraints")
        if not matched.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    known = dict.fromkeys((*_VARIABLES, "params") if "paramKind" in spec else _VARIABLES, "dyn")
    yield from validate_conditions(spec.get("matchConditions") or (), "spec.matchConditions")
    for index, variable in enumerate(spec.get("variables") or ()):
        yield from _validate_expression(variable, "expression", f"spec.variables[{index}]", known, "")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required("spec.validations", _NOTHING)
        yield required("spec.auditAnnotations", _NOTHING)
    for index, validation in enumerate(spec.get("validations") or ()):
        yield from _validate_validation(validation, f"spec.validations[{index}]", known)


def validate_binding(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    if not spec.get("policyName"):
        yield required("spec.policyName")
    if "matchResources" in spec:
        yield from _validate_resources(spec["matchResources"], "spec.matchResources")
    yield from _validate_actions(spec.get("validationActions") or [], "spec.validationActions")


def _validate_actions(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield unsupported_value(f"{path}[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate_value(f"{path}[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        yield invalid_value(path, actions, _BOTH)
    if not actions:
        yield required(path, "at least one validation action is required")


def _validate_choice(obj: Obj, field: str, path: str) -> Iterator[FieldError]:
    if obj.get(field) not in _CHOICES[field]:
        yield unsupported_value(f"{path}.{field}", obj.get(field), _CHOICES[field])


def _validate_parameters(kind: Obj, path: str) -> Iterator[FieldError]:
    api_version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = api_version.rpartition("/")
    if not api_version:
        yield required(f"{path}.apiVersion")
    elif "/" in group:
        yield invalid_value(f"{path}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}")
    else:
        if group and (wrong := ",".join(object_names.subdomain(group))):
            yield invalid_value(f"{path}.apiVersion", group, wrong)
        if not version:
            yield invalid_value(f"{path}.apiVersion", api_version, "version must be specified")
        elif wrong := ",".join(object_names.old_label(version)):
            yield invalid_value(f"{path}.apiVersion", version, wrong)
    if not name:
        yield required(f"{path}.kind")
    elif wrong := ",".join(object_names.old_label(name.lower())):
        yield invalid_value(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {wrong}")


def _validate_resources(matched: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_choice(matched, "matchPolicy", path)
    for field in ("namespaceSelector", "objectSelector"):
        yield from validate_selector(matched.get(field) or {}, f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(matched.get(field) or ()):
            yield from validate_rule(rule, f"{path}.{field}[{index}]")


def _validate_validation(validation: Obj, path: str, known: dict[str, str]) -> Iterator[FieldError]:
    message, reason = validation.get("message") or "", validation.get("reason")
    yield from _validate_expression(validation, "expression", path, known, "BOOL")
    if validation.get("messageExpression"):
        yield from _validate_expression(validation, "messageExpression", path, known, "STRING")
    if message and not message.strip():
        yield invalid_value(f"{path}.message", message, "message must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid_value(f"{path}.message", message, "message must not contain line breaks")
    if reason is not None and reason not in _REASONS:
        yield unsupported_value(f"{path}.reason", reason, _REASONS)


def _validate_expression(
        obj: Obj, field: str, path: str, known: dict[str, str], result: str,
) -> Iterator[FieldError]:
    text = obj.get(field) or ""
    if not text.strip():
        if field == "expression":
            yield required(f"{path}.{field}", "expression is not specified")
        else:
            yield invalid_value(f"{path}.{field}", text, "must be non-empty if specified")
    elif why := find_fault(text, known, result):
        yield invalid_value(f"{path}.{field}", text, why)
