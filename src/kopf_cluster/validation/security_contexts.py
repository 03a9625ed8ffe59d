"""
Security contexts: as whom the processes run, and what they may do.

See "Configure a Security Context for a Pod or Container".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, duplicate_value, invalid_value, required

Obj: TypeAlias = dict[str, Any]

_ID_RULE: Final = "must be between 0 and 2147483647, inclusive"

# The fields of the server's own type, in whose form the value is shown.
_SHOWN: Final = (
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
)
_OWN_NAMES: Final = {"seLinuxOptions": "SELinuxOptions"}


def validate_pod_context(context: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_ids(context, path, "fsGroup", "runAsUser", "runAsGroup")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _validate_id(group, f"{path}.supplementalGroups[{index}]")
    names: set[str] = set()
    for index, setting in enumerate(context.get("sysctls") or ()):
        name = setting.get("name") or ""
        if name in names:
            yield duplicate_value(f"{path}.sysctls[{index}].name", name)
        names.add(name)
    yield from _validate_profiles(context, path)


def validate_container_context(context: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_ids(context, path, "runAsUser", "runAsGroup")
    yield from _validate_profiles(context, path)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield invalid_value(
                path, _show(context), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            )
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            yield invalid_value(
                path,
                _show(context),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            )


def _validate_ids(context: Obj, path: str, *fields: str) -> Iterator[FieldError]:
    for field in fields:
        if (number := context.get(field)) is not None:
            yield from _validate_id(number, f"{path}.{field}")


def _validate_id(number: int, path: str) -> Iterator[FieldError]:
    if not 0 <= number < 2**31:
        yield invalid_value(path, number, _ID_RULE)


def _validate_profiles(context: Obj, path: str) -> Iterator[FieldError]:
    for field, name in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        kind, local = profile.get("type") or "", profile.get("localhostProfile")
        if not kind:
            yield required(f"{path}.{field}.type", f"type is required when {field} is set")
        if kind == "Localhost" and not local:
            yield required(f"{path}.{field}.localhostProfile", f"must be set when {name} type is Localhost")
        elif kind != "Localhost" and local is not None:
            shown = {"Type": kind, "LocalhostProfile": local} if field == "seccompProfile" else local
            yield invalid_value(
                f"{path}.{field}.localhostProfile", shown, f"can only be set when {name} type is Localhost"
            )


def _show(context: Obj) -> Obj:
    """Show a context as the server does: in its own form, with its own names."""
    shown = {_own_name(field): _own_form(context.get(field)) for field in _SHOWN}
    if (capabilities := shown["Capabilities"]) is not None:
        shown["Capabilities"] = {"Add": None, "Drop": None, **capabilities}
    return shown


def _own_form(value: Any) -> Any:
    return {_own_name(name): _own_form(item) for name, item in value.items()} if isinstance(value, dict) else value


def _own_name(name: str) -> str:
    return _OWN_NAMES.get(name) or name[0].upper() + name[1:]
