"""
Kinds about admission: webhook configurations, see "Dynamic Admission Control", and policies in CEL.
"""

from __future__ import annotations

import importlib.util
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kopf_cluster.cel import expressions
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.objects import validate_qualified
from kopf_cluster.statuses import (
    FieldError,
    duplicate_value,
    invalid_value,
    invalid_values,
    needed,
    one_of,
    required,
    too_many,
    unsupported_value,
)
from kopf_cluster.validation import fields
from kopf_cluster.validation.fields import Obj, each, unique, validate_selector, within

_VARIABLES: Final = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}
_AUTHORIZER: Final = re.compile(r"\bauthorizer\b")  # its methods are not known here
_MAX_CONDITIONS: Final = 64
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_VERSIONS: Final = ("v1", "v1beta1")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_URL_FORM: Final = "; desired format: https://host[/path]"
_CHOICES: Final = {"failurePolicy": ("Fail", "Ignore"), "matchPolicy": ("Equivalent", "Exact")}


def validate_webhooks(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield all errors in the webhooks of a configuration."""
    seen: set[str] = set()
    for index, webhook in enumerate(new.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", webhook.get("name") or ""
        yield from _validate_webhook(webhook, path)
        yield from _validate_versions(webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")
        yield from unique(name, f"{path}.name", seen)


def _validate_webhook(webhook: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_full_name(webhook.get("name") or "", f"{path}.name")
    yield from each(webhook, "rules", path, validate_rule)
    for field, choices in _CHOICES.items():
        if webhook.get(field) not in (None, *choices):
            yield unsupported_value(f"{path}.{field}", webhook[field], choices)
    effects = webhook.get("sideEffects")
    if effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    elif effects not in _SIDE_EFFECTS:
        yield unsupported_value(f"{path}.sideEffects", effects, _SIDE_EFFECTS)
    yield from within(
        f"{path}.timeoutSeconds",
        webhook.get("timeoutSeconds"),
        1,
        30,
        "the timeout value must be between 1 and 30 seconds",
    )
    for field in ("namespaceSelector", "objectSelector"):
        yield from validate_selector(webhook.get(field) or {}, f"{path}.{field}")
    if webhook.get("reinvocationPolicy") not in (None, "IfNeeded", "Never"):
        yield unsupported_value(f"{path}.reinvocationPolicy", webhook["reinvocationPolicy"], ("IfNeeded", "Never"))
    yield from _validate_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from validate_conditions(webhook.get("matchConditions") or (), f"{path}.matchConditions")


def _validate_full_name(name: str, path: str) -> Iterator[FieldError]:
    wrong = ",".join(objects.subdomain(name))
    if not name:
        yield required(path)
    elif wrong:
        yield invalid_value(path, name, wrong)
    elif name.count(".") < 2:
        yield invalid_value(path, name, "should be a domain with at least three segments separated by dots")


def validate_rule(rule: Obj, path: str) -> Iterator[FieldError]:
    operations: list[str] = rule.get("operations") or []
    yield from _validate_listed(operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        yield from one_of(f"{path}.operations[{index}]", operation, _OPERATIONS)
    yield from _validate_listed(rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    versions: list[str] = rule.get("apiVersions") or []
    yield from _validate_listed(versions, f"{path}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        yield from needed(f"{path}.apiVersions[{index}]", version)
    yield from _validate_resources(rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope") not in (None, "*", "Cluster", "Namespaced"):
        yield unsupported_value(f"{path}.scope", rule["scope"], ("*", "Cluster", "Namespaced"))


def _validate_listed(values: list[str], path: str, what: str) -> Iterator[FieldError]:
    if not values:
        yield required(path)
    elif len(values) > 1 and "*" in values:
        yield invalid_value(path, values, f"if '*' is present, must not specify other {what}")


def _validate_resources(resources: list[str], path: str) -> Iterator[FieldError]:
    yield from needed(path, resources)
    whole_resources: set[str] = set()
    whole_subresources: set[str] = set()
    for index, item in enumerate(resources):
        resource, slash, subresource = item.partition("/")
        yield from needed(f"{path}[{index}]", item)
        if slash and resource in whole_resources:
            yield invalid_value(f"{path}[{index}]", item, f"if '{resource}/*' is present, must not specify {item}")
        if slash and subresource in whole_subresources:
            yield invalid_value(f"{path}[{index}]", item, f"if '*/{subresource}' is present, must not specify {item}")
        if slash and subresource == "*":
            whole_resources.add(resource)
        if slash and resource == "*":
            whole_subresources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid_value(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and any(item and item != "*" and "/" not in item for item in resources):
        yield invalid_value(path, resources, "if '*' is present, must not specify other resources without subresources")


def _validate_client(config: Obj, path: str) -> Iterator[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _validate_url(url, f"{path}.url")
    else:
        yield from _validate_service(service or {}, f"{path}.service")


def _validate_url(text: str, path: str) -> Iterator[FieldError]:
    try:
        url = urllib.parse.urlsplit(text)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: parse {text}: {error}{_URL_FORM}")
        return
    user, _, host = url.netloc.rpartition("@")
    if url.scheme != "https":
        yield invalid_value(path, url.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not host:
        yield invalid_value(path, host, f"host must be provided{_URL_FORM}")
    forbidden = ((user, "user information is"), (url.fragment, "fragments are"), (url.query, "query parameters are"))
    for part, what in forbidden:
        if part:
            yield invalid_value(path, part, f"{what} not permitted in the URL")


def _validate_service(service: Obj, path: str) -> Iterator[FieldError]:
    for field in ("name", "namespace"):
        yield from needed(f"{path}.{field}", service.get(field), f"service {field} is required")
    port = service.get("port", 443)
    for why in fields.port(port):
        yield invalid_value(f"{path}.port", port, f"port is not valid: {why}")
    url_path = service.get("path") or "/"
    if url_path == "/":
        return
    if not url_path.startswith("/"):
        yield invalid_value(f"{path}.path", url_path, "must start with a '/'")
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid_value(f"{path}.path", url_path, f"segment[{index}] may not be empty")
        else:
            for why in objects.subdomain(step):
                yield invalid_value(f"{path}.path", url_path, f"segment[{index}]: {why}")


def validate_conditions(conditions: Sequence[Obj], path: str) -> Iterator[FieldError]:
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(path, len(conditions), _MAX_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        name, expression = condition.get("name") or "", (condition.get("expression") or "").strip()
        if not expression:
            yield required(f"{path}[{index}].expression")
        elif why := find_fault(expression, _VARIABLES, "BOOL"):
            yield invalid_value(f"{path}[{index}].expression", expression, why)
        if not name:
            yield required(f"{path}[{index}].name")
        else:
            yield from validate_qualified(f"{path}[{index}].name", name)
        yield from unique(name, f"{path}[{index}].name", seen)


def find_fault(expression: str, variables: Mapping[str, str], result: str) -> str:
    """Return why the expression cannot be evaluated to this type; an empty text if it can, or if that is unknown."""
    if _AUTHORIZER.search(expression) or importlib.util.find_spec("cel_expr_python") is None:
        return ""
    try:
        found = expressions.compile_expression(expression, variables).result_type
    except expressions.CompilationError as error:
        return str(error)
    return "" if not result or found in (result, "DYN") else f"must evaluate to {result.lower()}"


def _validate_versions(versions: list[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield required(path, f"must specify one of {', '.join(_VERSIONS)}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid_value(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from invalid_values(f"{path}[{index}]", version, objects.old_label(version))
    if not set(versions) & set(_VERSIONS):
        yield invalid_value(path, versions, f"must include at least one of {', '.join(_VERSIONS)}")


# Admission policies in CEL, which the server stores but does not evaluate, and their bindings.

_NOTHING: Final = "validations or auditAnnotations must contain at least one item"
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_BOTH: Final = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API "
    "response and headers serves no purpose)"
)
_POLICY_VARIABLES: Final = ("object", "oldObject", "request", "namespaceObject", "variables")


def validate_policy(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from _validate_choice(spec, "failurePolicy", "spec")
    if "paramKind" in spec:
        yield from _validate_parameters(spec["paramKind"], "spec.paramKind")
    matched = spec.get("matchConstraints")
    if matched is None:
        yield required("spec.matchConstraints")
    else:
        yield from _validate_matched(matched, "spec.matchConstraints")
        yield from needed("spec.matchConstraints.resourceRules", matched.get("resourceRules"))
    known = dict.fromkeys((*_POLICY_VARIABLES, "params") if "paramKind" in spec else _POLICY_VARIABLES, "dyn")
    yield from validate_conditions(spec.get("matchConditions") or (), "spec.matchConditions")
    yield from each(spec, "variables", "spec", _validate_expression, "expression", known, "")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required("spec.validations", _NOTHING)
        yield required("spec.auditAnnotations", _NOTHING)
    yield from each(spec, "validations", "spec", _validate_validation, known)


def validate_binding(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from needed("spec.policyName", spec.get("policyName"))
    if "matchResources" in spec:
        yield from _validate_matched(spec["matchResources"], "spec.matchResources")
    yield from _validate_actions(spec.get("validationActions") or [], "spec.validationActions")


def _validate_actions(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, action in enumerate(actions):
        yield from one_of(f"{path}[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate_value(f"{path}[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        yield invalid_value(path, actions, _BOTH)
    yield from needed(path, actions, "at least one validation action is required")


def _validate_choice(obj: Obj, field: str, path: str) -> Iterator[FieldError]:
    yield from one_of(f"{path}.{field}", obj.get(field), _CHOICES[field])


def _validate_parameters(kind: Obj, path: str) -> Iterator[FieldError]:
    api_version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = api_version.rpartition("/")
    if not api_version:
        yield required(f"{path}.apiVersion")
    elif "/" in group:
        yield invalid_value(f"{path}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}")
    else:
        if group and (wrong := ",".join(objects.subdomain(group))):
            yield invalid_value(f"{path}.apiVersion", group, wrong)
        if not version:
            yield invalid_value(f"{path}.apiVersion", api_version, "version must be specified")
        elif wrong := ",".join(objects.old_label(version)):
            yield invalid_value(f"{path}.apiVersion", version, wrong)
    if not name:
        yield required(f"{path}.kind")
    elif wrong := ",".join(objects.old_label(name.lower())):
        yield invalid_value(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {wrong}")


def _validate_matched(matched: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_choice(matched, "matchPolicy", path)
    for field in ("namespaceSelector", "objectSelector"):
        yield from validate_selector(matched.get(field) or {}, f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        yield from each(matched, field, path, validate_rule)


def _validate_validation(validation: Obj, path: str, known: dict[str, str]) -> Iterator[FieldError]:
    message, reason = validation.get("message") or "", validation.get("reason")
    yield from _validate_expression(validation, path, "expression", known, "BOOL")
    if validation.get("messageExpression"):
        yield from _validate_expression(validation, path, "messageExpression", known, "STRING")
    if message and not message.strip():
        yield invalid_value(f"{path}.message", message, "message must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid_value(f"{path}.message", message, "message must not contain line breaks")
    if reason is not None and reason not in _REASONS:
        yield unsupported_value(f"{path}.reason", reason, _REASONS)


def _validate_expression(
    obj: Obj,
    path: str,
    field: str,
    known: dict[str, str],
    result: str,
) -> Iterator[FieldError]:
    text = obj.get(field) or ""
    if not text.strip():
        if field == "expression":
            yield required(f"{path}.{field}", "expression is not specified")
        else:
            yield invalid_value(f"{path}.{field}", text, "must be non-empty if specified")
    elif why := find_fault(text, known, result):
        yield invalid_value(f"{path}.{field}", text, why)
