"""
Kinds with few rules: leases, priority classes, API services, roles, disruption budgets, quotas, limit ranges, config
maps, secrets.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from typing import Final

from kopf_cluster import codec, quantities
from kopf_cluster.access.authorizing import GROUP
from kopf_cluster.kinds import objects
from kopf_cluster.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    invalid_values,
    needed,
    required,
    too_long,
    unsupported_value,
)
from kopf_cluster.validation.fields import Obj, not_negative, number_or_percent, unique, validate_selector, within

_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_MAX_PRIORITY: Final = 1_000_000_000  # of user-made classes


def validate_lease(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    yield from within("spec.leaseDurationSeconds", duration, 1, math.inf, "must be greater than 0")
    yield from not_negative(spec, "spec", "leaseTransitions")


def validate_priority_class(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name, value = new["metadata"].get("name") or "", new.get("value") or 0
    if not name.startswith("system-"):
        if value > _MAX_PRIORITY:
            yield forbidden_value("value", f"maximum allowed value of a user defined priority is {_MAX_PRIORITY}")
    elif value != _SYSTEM_PRIORITIES.get(name):
        why = (
            f"value of {name} PriorityClass must be {_SYSTEM_PRIORITIES[name]}"
            if name in _SYSTEM_PRIORITIES
            else f"{name} is not a known system priority class"
        )
        yield forbidden_value(
            "metadata.name",
            f"priority class names with 'system-' prefix are reserved for system use only. error: {why}",
        )


def validate_api_service(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name, spec = new["metadata"].get("name"), new.get("spec") or {}
    group, version, service = spec.get("group") or "", spec.get("version") or "", spec.get("service")
    if name != (wanted := f"{version}.{group}"):
        yield invalid_value("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    yield from invalid_values("spec.group", group, objects.subdomain(group) if group else ())
    yield from invalid_values("spec.version", version, objects.old_label(version))
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        yield from within(f"spec.{field}", spec.get(field) or 0, 1, most, f"must be positive and less than {most}")
    yield from _validate_trust(spec, is_local=service is None)
    if service is not None:
        for field in ("namespace", "name"):
            yield from needed(f"spec.service.{field}", service.get(field))


def _validate_trust(spec: Obj, *, is_local: bool) -> Iterator[FieldError]:
    bundle, is_blind = spec.get("caBundle") or "", spec.get("insecureSkipTLSVerify")
    if is_local and bundle:
        size = len(bundle) * 3 // 4 - bundle.count("=")
        yield invalid_value("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle")
    if is_blind and (is_local or bundle):
        yield invalid_value(
            "spec.insecureSkipTLSVerify",
            True,
            "local APIServices may not have insecureSkipTLSVerify"
            if is_local
            else "may not be true if caBundle is present",
        )


# Roles and their bindings.

_SUBJECTS: Final = ("Group", "ServiceAccount", "User")


def validate_role(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    namespaced = bool(new["metadata"].get("namespace"))
    for index, rule in enumerate(new.get("rules") or ()):
        path = f"rules[{index}]"
        yield from needed(f"{path}.verbs", rule.get("verbs"), "verbs must contain at least one value")
        if paths := rule.get("nonResourceURLs"):
            if namespaced:
                yield invalid_value(
                    f"{path}.nonResourceURLs", paths, "namespaced rules cannot apply to non-resource URLs"
                )
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                yield invalid_value(
                    f"{path}.nonResourceURLs",
                    paths,
                    "rules cannot apply to both regular resources and non-resource URLs",
                )
            continue
        yield from needed(
            f"{path}.apiGroups", rule.get("apiGroups"), "resource rules must supply at least one api group"
        )
        yield from needed(
            f"{path}.resources", rule.get("resources"), "resource rules must supply at least one resource"
        )


def validate_binding(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    reference, namespaced = new.get("roleRef") or {}, bool(new["metadata"].get("namespace"))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if reference.get("apiGroup") != GROUP:
        yield unsupported_value("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,))
    if reference.get("kind") not in kinds:
        yield unsupported_value("roleRef.kind", reference.get("kind") or "", kinds)
    yield from needed("roleRef.name", reference.get("name"))
    for index, subject in enumerate(new.get("subjects") or ()):
        yield from _validate_subject(subject, f"subjects[{index}]", namespaced)


def _validate_subject(subject: Obj, path: str, namespaced: bool) -> Iterator[FieldError]:
    """Yield all errors in a subject; an account without a namespace is in that of the binding."""
    kind, group = subject.get("kind") or "", subject.get("apiGroup") or ""
    yield from needed(f"{path}.name", subject.get("name"))
    if kind not in _SUBJECTS:
        yield unsupported_value(f"{path}.kind", kind, _SUBJECTS)
    elif kind == "ServiceAccount":
        if group:
            yield unsupported_value(f"{path}.apiGroup", group, ("",))
        if not subject.get("namespace") and not namespaced:
            yield required(f"{path}.namespace")
    elif group != GROUP:
        yield unsupported_value(f"{path}.apiGroup", group, (GROUP,))


# Numbers and amounts: disruption budgets, quotas, limit ranges.

_COUNTED: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_MEASURED: Final = frozenset(
    {
        "cpu",
        "memory",
        "ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "requests.storage",
    }
)

# Of each resource, the first must not be greater than the second; the field that is blamed, and whose value is shown.
_ORDERED: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)


def validate_budget(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        yield invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            yield from number_or_percent(spec[field], f"spec.{field}", most=100)
    yield from validate_selector(spec.get("selector") or {}, "spec.selector")


def validate_quota(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    for name, value in ((new.get("spec") or {}).get("hard") or {}).items():
        path, amount = f"spec.hard[{name}]", quantities.amount(value)
        if "/" not in name and name not in _COUNTED | _MEASURED and "hugepages-" not in name:
            yield invalid_value(path, name, "must be a standard resource type or fully qualified")
            yield invalid_value(path, name, "must be a standard resource for quota")
        if amount < 0:
            yield invalid_value(path, value, "must be greater than or equal to 0")
        if name in _COUNTED and amount.denominator != 1:
            yield invalid_value(path, value, "must be an integer")


def validate_range(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, limit in enumerate((new.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", limit.get("type") or ""
        yield from unique(kind, f"{path}.type", seen)
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if limit.get(field):
                    yield forbidden_value(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
        if kind == "PersistentVolumeClaim" and not any("storage" in (limit.get(one) or ()) for one in ("min", "max")):
            yield required(
                f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided"
            )
        yield from _validate_order(limit, path)


def _validate_order(limit: Obj, path: str) -> Iterator[FieldError]:
    for lower, upper, blamed, shown, text in _ORDERED:
        least, most = limit.get(lower) or {}, limit.get(upper) or {}
        for name in sorted(least.keys() & most.keys()):
            if quantities.amount(least[name]) > quantities.amount(most[name]):
                yield invalid_value(
                    f"{path}.{blamed}[{name}]", limit[shown][name], text.format(least[name], most[name])
                )
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        if quantities.amount(ratio) < 1:
            yield invalid_value(f"{path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")


# The data of config maps and secrets: their keys, which are names of files in pods, and the needs of secret types.

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_MOST: Final = 1024 * 1024  # bytes of all values together
_ACCOUNT: Final = "kubernetes.io/service-account.name"
# What must be there, and what must be JSON, by the types without their prefix.
_NEEDED: Final = {
    "tls": ("tls.crt", "tls.key"),
    "dockercfg": (".dockercfg",),
    "dockerconfigjson": (".dockerconfigjson",),
}
_JSON: Final = ("dockercfg", "dockerconfigjson")


def validate_config_map(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    for field, keys, other, others in (("data", data, "binaryData", binary), ("binaryData", binary, "data", data)):
        for key in keys:
            yield from _validate_key(key, field)
            if key in others:
                yield invalid_value(f"{field}[{key}]", key, f"duplicate of key present in {other}")
    if sum(len(text.encode()) for text in data.values()) + sum(map(_size, binary.values())) > _MOST:
        yield too_long("[]", _MOST)


def validate_secret(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    data = new.get("data") or {}
    for key in data:
        yield from _validate_key(key, "data")
    if sum(map(_size, data.values())) > _MOST:
        yield too_long("data", _MOST)
    kind = (new.get("type") or "").removeprefix("kubernetes.io/")
    for key in _NEEDED.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif kind in _JSON and (why := _find_fault(base64.b64decode(data[key]))):
            yield invalid_value(f"data[{key}]", "<secret contents redacted>", why)
    if kind == "basic-auth" and "username" not in data and "password" not in data:
        yield required("data[username]")
        yield required("data[password]")
    if kind == "ssh-auth" and not data.get("ssh-privatekey"):
        yield required("data[ssh-privatekey]")
    if kind == "service-account-token" and not (new["metadata"].get("annotations") or {}).get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")


def _size(encoded: str) -> int:
    """Return the number of bytes that are encoded in base64."""
    letters = len(encoded) - encoded.count("\n") - encoded.count("\r")
    return letters * 3 // 4 - encoded.count("=")


def _validate_key(key: str, field: str) -> Iterator[FieldError]:
    if len(key) > 253:
        yield invalid_value(f"{field}[{key}]", key, "must be no more than 253 characters")
    elif key in (".", ".."):
        yield invalid_value(f"{field}[{key}]", key, f"must not be '{key}'")
    elif _KEY.fullmatch(key) is None:
        yield invalid_value(f"{field}[{key}]", key, _KEY_RULE)


def _find_fault(text: bytes) -> str:
    """Return why the text is no JSON object; an empty text if it is one."""
    try:
        data = codec.decode(text)
    except (codec.DecodeError, RecursionError) as error:
        return str(error)
    is_fit = data is None or isinstance(data, dict)
    return "" if is_fit else f"json: cannot unmarshal {codec.type_name(data)} into an object"
